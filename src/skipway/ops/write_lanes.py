"""write_lanes: the branch's result goes to every lane, each with a weight of its own."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from skipway.ops._lanes import bmm, by_token, for_tokens, in_rows, mv, summed, to_each
from skipway.ops._mode import run


def write_lanes(lanes: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """lanes_j + weight_j y.

    lanes (n, ..., dim), y (..., dim); weight (n,), or (..., n). Gives lanes in their dtype.
    """
    return run(Write, lanes, y.to(lanes.dtype), weight.to(lanes.dtype))


def plain(lanes: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """The same as broadcast products and sums."""
    return (lanes.movedim(0, -2) + weight.unsqueeze(-1) * y.unsqueeze(-2)).movedim(-2, 0)


class Write(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(lanes: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return torch.addcmul(lanes, to_each(weight, lanes), y)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
        y, weight = ctx.saved_tensors
        return g, *_by_branch(g, y, weight)


def _by_branch(g: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of y and of its weights from that of the lanes, (n, ..., dim)."""
    if in_rows(g, weight.dim() == 1):
        rows = g.reshape(g.shape[0], -1)
        return mv(rows.mT, weight).view(y.shape), mv(rows, y.reshape(-1))
    g = by_token(g)
    by_y = bmm(for_tokens(weight.unsqueeze(-2), g), g).view(y.shape)
    return by_y, summed(bmm(g, y.reshape(-1, 1, y.shape[-1]).mT), weight)
