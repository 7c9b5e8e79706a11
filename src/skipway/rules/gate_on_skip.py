"""gate-on-skip: a learned gate or a zero-initialised scale multiplies the shortcut instead of the branch.

What it does
    Finds the parameters and buffers that multiply the shortcut of a join and nothing of its branch, and reports those
    whose mean magnitude, behind a tanh or sigmoid where there is one, is at most 0.5.
Why it matters
    ReZero, SkipInit, LayerScale and gated blocks start as the identity: the scale near zero stands on the branch. On the
    shortcut it does the opposite. The stream is multiplied by almost nothing at every block, what earlier blocks wrote is
    gone, and the net trains like a plain one. Reported in fabio-deep/Distributed-Pytorch-Boilerplate#1, where ReZero was
    written `alpha * x + F(x)`.
Fires on
    `alpha * x + F(x)` with alpha 0, in any spelling; a LayerScale vector of 1e-5 on the shortcut; `torch.sigmoid(g) * x +
    F(x)` with g at or below 0, `x * tanh(g)`; a scale before or behind a projection on the shortcut.
Quiet on
    The scale on the branch. Pairs that scale both sides, learned or convex (`(1 - g) * x + g * F(x)`, lerp, nGPT). Gates that
    depend on the input (highway, GRU). Stored scales near or above 1 on the stream (x0-lambdas, DeepNorm's alpha, Admin).
    A scale of the whole stream, which the branch reads as well. Recurrences, where one decay multiplies one state at
    every step (leaky integrators, spiking cells).
What to do
    Multiply the branch: `x + alpha * F(x)`. Where the shortcut is meant to be learned, start it at 1.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit, Spot
from skipway.rules._real import Real
from skipway.rules._scales import Scale, on_branch, on_shortcut
from skipway.wiring.states import GATED, MIXED

CODE = "SKW301"
STAGE = "values"
SEVERITY = "error"

MOST = 0.5      # a sigmoid at its usual start; what is above is a stream that goes on
DECAY = 0.05    # the same for the steps of a recurrence, which may forget


def check(facts: Facts) -> Iterator[Hit]:
    real = facts.real
    steps = Counter(_step(spot) for spot in real.spots)
    told: set[tuple[str, ...]] = set()
    for spot in real.spots:
        place = spot.place
        marks = real.graph.marks[place.join.shortcut]
        if place.join.folded or marks & (GATED | MIXED) or any(t.marks & GATED for t in place.terms):
            continue
        most = MOST if steps[_step(spot)] == 1 else DECAY
        small = [s for s in on_shortcut(real, place) if s.names and s.names not in told and s.mean <= most]
        if not small or on_branch(real, place):
            continue
        for scale in small:
            told.add(scale.names)
            yield _hit(real, spot, scale)


def _step(spot: Spot) -> tuple[str, tuple[str, ...]]:
    """The sublayer of a site: where it comes again, the joins are steps of a recurrence."""
    return spot.place.module, tuple(m for t in spot.place.terms for m in t.modules)


def _hit(real: Real, spot: Spot, scale: Scale) -> Hit:
    where, mean = scale.names[0], scale.mean
    text = (f"`{where}` multiplies the shortcut around `{real.sublayer(spot.place)}` by {mean:.3g} on average, and nothing scales the branch: "
            "the stream is lost here; multiply the branch instead, x + scale * F(x)")
    return Hit(where, text, None, real.line(spot.place.join.node), {"identity_gain": mean, "want": 1.0})


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(1))
        self.up, self.down = nn.Linear(dim, 32), nn.Linear(32, dim)

    def branch(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x)))


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=nn.Sequential(block(), block()), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="blocks.0.alpha", options={"stage": "values"})


def bad() -> Example:
    """ReZero's scale, zero at the start, stands on the stream."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            return self.alpha * x + self.branch(x)

    return _example(Block)


def good() -> Example:
    """The scale stands on the branch: each block starts as the identity."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            return x + self.alpha * self.branch(x)

    return _example(Block)
