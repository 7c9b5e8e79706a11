"""broadcast-add: a residual add broadcasts, for its operands have different shapes.

What it does
    Reports a join whose shortcut and branch differ in shape or rank, with both shapes and the shape of the sum.
Why it matters
    A branch that lost an axis is added to every row of another axis: (B, 1, T) + (B, T) gives (B, B, T). Nothing raises
    while sizes allow it, memory grows, and every position receives the others' results. In sooftware/kospeech#43 a
    context vector came out as (batch, batch, dim). Broadcasting of this kind was questioned early on:
    pytorch/pytorch#2529, pytorch/pytorch#105739.
Fires on
    `x + F(x).squeeze(1)` and `x + F(x.squeeze(1))` without the axis put back; a branch of width 1 added to the whole
    width; a rank that differs, also where the sizes happen to be 1.
Quiet on
    Branches that broadcast by design with the axis kept: a pooled context of shape (B, C, 1, 1) added to (B, C, H, W),
    one vector per sample with an explicit axis for the tokens. Adds that are no joins: position tables, masks, biases,
    time embeddings; one branch written to every lane of a multi-lane stream.
What to do
    Keep the axis (`keepdim=True`, or no `squeeze`), or put it back with `unsqueeze` before the add.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit, shape

CODE = "SKW501"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    g = facts.graph
    for spot in facts.spots:
        join = spot.place.join
        a, b, out = g.nodes[join.shortcut].shape, g.nodes[join.branch].shape, g.nodes[join.node].shape
        if join.branch == join.node or a == b or spot.flow.stream is None or spot.flow.stream.lanes > 1 or join.folded or join.node in g.reads:
            continue
        width = 1 if len(a) > 3 else -1
        if out == a and len(a) == len(b) and a[width] == b[width]:
            continue                                        # a context of one value a channel, spread over places on purpose
        where = facts.sublayer(spot.place)
        text = f"this add broadcasts: shortcut {shape(a)} + `{where}` {shape(b)} -> {shape(out)}; bring both to one shape before it"
        yield Hit(where, text, None, facts.line(join.node), {"shortcut": list(a), "branch": list(b), "out": list(out)})


class _TimeMixer(nn.Module):
    """(batch, 1, time) -> (batch, 1, time)."""

    def __init__(self, steps: int = 8) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(steps, 16), nn.Linear(16, steps)

    def branch(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x.squeeze(1))))


class _Forecaster(nn.Module):
    def __init__(self, mixer: type[nn.Module]) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.mixers = nn.Sequential(mixer(), mixer())

    def forward(self, series: Tensor) -> Tensor:
        y: Tensor = self.mixers(self.embed(series).unsqueeze(1))
        return y.mean(1)


def _example(mixer: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    return Example(_Forecaster(mixer).eval(), (torch.randn(3, 8),), where="mixers.0")


def bad() -> Example:
    """(3, 1, 8) + (3, 8) broadcasts to (3, 3, 8), and the mean at the end hides it."""

    class Mixer(_TimeMixer):
        def forward(self, x: Tensor) -> Tensor:
            return x + self.branch(x)

    return _example(Mixer)


def good() -> Example:
    """The branch gets its channel axis back before the add."""

    class Mixer(_TimeMixer):
        def forward(self, x: Tensor) -> Tensor:
            return x + self.branch(x).unsqueeze(1)

    return _example(Mixer)
