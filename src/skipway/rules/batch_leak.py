"""batch-leak: a branch lets the samples of a batch influence one another (batch and token axes confused).

What it does
    Replaces one sample of the state that a branch reads and works the branch out anew, on values alone. Reports a branch of
    which the rows of other samples change. The batch is the first axis of the inputs; a model that only ever mixes along
    it, and never along the second one, is taken for a sequence-first model where something says so: a position table along
    that axis, inputs of different length, a first axis longer than the second.
Why it matters
    `nn.MultiheadAttention` takes (token, batch, channel) unless told otherwise. Given (batch, token, channel) it attends over
    the samples: shapes are right, the loss falls, and every prediction depends on what else is in the batch. It shows as
    scores that change with the batch size, and as a model that cannot learn order at all.
Fires on
    `nn.MultiheadAttention(dim, heads)` without `batch_first=True` on (batch, token, channel); `nn.LSTM` the same; `x.view(t, b, c)`
    where a transpose was meant; a softmax or a mean over axis 0.
Quiet on
    Batch norm, also with batch statistics in evaluation. Attention between transposes that come back. Models that run
    sequence-first throughout. Experts that are chosen by token or fill up, and sublayers
    that are named for attending over samples (SAINT, BatchFormer). States without a token axis (graphs, tables, packed
    sequences). A batch of one, where nothing can be seen: the report has a note then.
What to do
    Pass `batch_first=True`, or transpose before and after the sublayer.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit, Spot
from skipway.rules._local import Branch, sample_axes
from skipway.rules._order import sequence_first
from skipway.rules._real import Real
from skipway.wiring import operations as ops

CODE = "SKW503"
STAGE = "values"
SEVERITY = "error"

CROSS = re.compile(r"(inter|cross)_?sample|batch_?(attn|attention|former)|data_?point", re.IGNORECASE)
STATISTICS = 5          # position of `training` among the arguments of a batch norm


def check(facts: Facts) -> Iterator[Hit]:
    real = facts.real
    batch = real.batch
    if batch < 2:
        if real.spots and batch == 1:
            facts.notes.append("batch-leak was not looked at: the batch holds one sample; give two or more")
        return
    axes = sample_axes(real)
    known: dict[Any, Tensor | None] = {}
    leaks: list[tuple[Spot, Tensor]] = []
    for spot in real.spots:
        axis = axes.get(spot.place.join.node)
        branch = Branch(real, spot.place)
        if axis is None or not branch.plain or not _judged(real, spot, branch):
            continue
        key = (axis, branch.likeness)
        if key not in known:
            known[key] = _leak(branch, axis, batch)
        reached = known[key]
        if reached is not None:
            leaks.append((spot, reached))
    if leaks and not sequence_first(real):
        for spot, reached in leaks:
            yield _hit(real, spot, reached, batch)


def _judged(real: Real, spot: Spot, branch: Branch) -> bool:
    """Whether a branch has no part that works on the batch by design, and its state has an axis besides samples and features."""
    g = real.graph
    shape = g.nodes[spot.place.join.shortcut].shape
    if len(shape) < 3 or any(t.kind == "moe" for t in spot.place.terms) or _meant(real, spot):
        return False
    for n in branch.path():
        node = g.nodes[n]
        if ops.NORMS.get(node.op) == "BatchNorm" and (node.op.endswith("_legit") or (len(node.args) > STATISTICS and node.args[STATISTICS] is True)):
            return False
        if node.op in ops.CONVOLUTIONS and g.nodes[node.ins[0]].shape == (1, *shape):      # an image without a batch
            return False
    return True


def _meant(real: Real, spot: Spot) -> bool:
    """Whether a name says that a sublayer works across samples."""
    paths = {spot.place.module}
    for module in (m for t in spot.place.terms for m in t.modules):
        parts = module.removeprefix(spot.place.module).split(".")
        paths |= {(spot.place.module + ".".join(parts[:k])).strip(".") for k in range(1, len(parts) + 1)}
    return any(CROSS.search(path) or CROSS.search(type(real.modules.get(path)).__name__) for path in paths)


def _leak(branch: Branch, axis: int, batch: int) -> Tensor | None:
    """Which samples a change of the first one reaches, where it reaches others; None where it does not."""
    elements = torch.zeros(branch.real.graph.nodes[branch.place.join.shortcut].shape, dtype=torch.bool)
    elements.select(axis, 0).fill_(True)
    _, reached = branch.moved(branch.results(branch.base), branch.results({**branch.base, branch.start: branch.other(elements)}))
    samples = reached.movedim(axis, 0).flatten(1).any(1)
    return samples if bool(samples[1:].any()) else None


def _hit(real: Real, spot: Spot, reached: Tensor, batch: int) -> Hit:
    where = real.sublayer(spot.place)
    others = [int(i) for i in reached.nonzero().flatten() if i]
    text = (f"a change of sample 0 in front of `{where}` changes the rows of {len(others)} other samples of {batch} behind it: it mixes along the "
            "batch axis; pass batch_first=True, or transpose before and after it")
    return Hit(where, text, None, real.line(spot.place.join.node), {"batch": batch, "samples_reached": others})


class _Block(nn.Module):
    batch_first = False

    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=self.batch_first)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))

    def forward(self, x: Tensor) -> Tensor:
        n = self.norm1(x)
        x = x + self.attn(n, n, n, need_weights=False)[0]
        return x + self.ffn(self.norm2(x))


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=nn.Sequential(block(), block()), norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="blocks.0.attn", options={"stage": "values"})


def bad() -> Example:
    """The attention takes the first axis for tokens, and the data has samples there."""

    class Block(_Block):
        batch_first = False

    return _example(Block)


def good() -> Example:
    """The attention is told which axis is which."""

    class Block(_Block):
        batch_first = True

    return _example(Block)
