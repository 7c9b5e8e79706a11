"""drop-path-axis: a stochastic-depth mask varies along an axis that is not the sample axis.

What it does
    Looks at one forward in training mode. For every random mask that multiplies a branch it finds the axes of the joined
    state along which one element of the mask acts, and, by changing one sample of the inputs, the axis along which the
    samples lie; reports a mask that is shared by the samples and varies along another axis, and a stochastic-depth module
    whose mask varies along more axes than that of the samples.
Why it matters
    Stochastic depth skips a branch for a whole sample. A mask made for axis 0 in a stack that runs tokens first drops the
    same tokens of all samples instead: it is another regulariser than the one that was tuned, and nothing tells, for
    shapes and expectation are right. Reported in microsoft/VideoX#85 ("it is a mistake") and
    taoyang1122/adapt-image-models#50.
Fires on
    `x + drop_path(attn(x))` with a mask of shape (x.size(0), 1, 1) where x is (token, batch, channel); a drop-path module
    that is ordinary drop-out, or draws one number for every token.
Quiet on
    One number a sample, in any layout and also where the branch is transposed between mask and add; one number a batch
    (torchvision's mode "batch"); samples folded with windows or frames; ordinary drop-out, Dropout1d to Dropout3d, DropBlock.
    Nothing is said where the batch holds one sample.
What to do
    Draw the mask along the axis of the samples: `shape = (1, x.size(1), 1)` for (token, batch, channel).
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit, shape
from skipway.rules._drops import Drop, axes_of, mean_of, on_branch, own_axes, sample_axis, stochastic_depth
from skipway.rules._real import Real
from skipway.wiring import operations as ops
from skipway.wiring.sites import Place

CODE = "SKW402"
STAGE = "train"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    real = facts.train
    told: set[str] = set()
    for spot in real.spots if real.weights else ():     # a model that is frozen as a whole is never run in training mode
        for drop in on_branch(real, spot.place):
            axes = axes_of(real, drop, spot.place.join)
            if not axes or not _drops_something(real, drop):
                continue
            axis = _samples(facts, real, spot.place, axes)
            where = real.path(drop.node) or real.sublayer(spot.place)
            if axis is None or where in told or not _wrong(real, drop, spot.place, axes, axis):
                continue
            told.add(where)
            yield _hit(real, drop, spot.place, axes, axis, where)


def _drops_something(real: Real, drop: Drop) -> bool:
    mean = mean_of(real, drop)
    return mean is None or mean.zeros > 0


def _samples(facts: Facts, real: Real, place: Place, axes: frozenset[int]) -> int | None:
    """The sample axis: of the same state in evaluation mode, where batch norm lets no samples mix."""
    size = real.graph.nodes[place.join.node].shape
    for spot in facts.real.spots:
        if spot.site.module == real.record.calls[place.call].path and facts.real.graph.nodes[spot.place.join.node].shape == size:
            return sample_axis(facts.real, spot.place)
    return sample_axis(real, place)


def _wrong(real: Real, drop: Drop, place: Place, axes: frozenset[int], axis: int) -> bool:
    module = real.record.calls[real.graph.nodes[drop.node].call].module
    named = stochastic_depth(module, real.path(drop.node))
    if axes == {axis}:
        return False
    if axis in axes:
        return named and (own_axes(real, drop) > 1 or drop.kind == "dropout")
    return named or not _features_only(real, place, axes)


def _features_only(real: Real, place: Place, axes: frozenset[int]) -> bool:
    """Whether a mask varies over the channels, which a regulariser of its own may drop for all samples alike."""
    g = real.graph
    rank = len(g.nodes[place.join.node].shape)
    convolves = any(g.nodes[n].op in ops.CONVOLUTIONS for n in place.join.region.nodes)
    channels = ({1} if convolves else set()) | ({rank - 1} if not convolves or rank > 3 else set())
    return bool(axes & channels)


def _hit(real: Real, drop: Drop, place: Place, axes: frozenset[int], axis: int, where: str) -> Hit:
    nodes = real.graph.nodes
    along = ", ".join(str(a) for a in sorted(axes - {axis}))
    state, mask = shape(nodes[place.join.node].shape), shape(nodes[drop.mask].shape)
    shared = "and is the same for all samples" if axis not in axes else "within each sample"
    text = (f"the stochastic-depth mask {mask} of `{where}` varies along axis {along} of the state {state} {shared}, "
            f"want one number a sample, along axis {axis}")
    values: dict[str, Any] = {"mask_axes": sorted(axes), "sample_axis": axis, "mask_shape": list(nodes[drop.mask].shape)}
    return Hit(where, text, None, real.line(drop.node), values)


class _DropPath(nn.Module):
    def __init__(self, rate: float, axis: int) -> None:
        super().__init__()
        self.rate, self.axis = rate, axis

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        size = [1] * x.dim()
        size[self.axis] = x.size(self.axis)
        return x * torch.empty(size).bernoulli_(1 - self.rate) / (1 - self.rate)


class _Block(nn.Module):
    def __init__(self, axis: int, dim: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, 2)           # tokens first
        self.drop_path = _DropPath(0.3, axis)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.drop_path(self.attn(y, y, y, need_weights=False)[0])


class _Tower(nn.Module):
    def __init__(self, axis: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([_Block(axis) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(0, 1)
        for block in self.blocks:
            x = block(x)
        return x.transpose(0, 1)


def _example(axis: int) -> Example:
    torch.manual_seed(0)
    return Example(_Tower(axis).eval(), (torch.randn(3, 5, 16),), where="blocks.0.drop_path", options={"stage": "train"})


def bad() -> Example:
    """A mask along axis 0 of a stream that holds tokens there."""
    return _example(0)


def good() -> Example:
    """The mask along axis 1, where the samples are."""
    return _example(1)
