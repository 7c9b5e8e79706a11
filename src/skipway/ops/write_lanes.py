"""write_lanes: the branch's result goes to every lane, each with a weight of its own."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from skipway.ops._lanes import as_lanes, bmm, by_token, for_tokens, summed
from skipway.ops._owned import owned


def write_lanes(lanes: Tensor, y: Tensor, weight: Tensor, fresh: bool = False) -> Tensor:
    """lanes_j + weight_j y.

    lanes (n, ..., dim), y (..., dim); weight (n,), or (..., n). Gives lanes in their dtype. `fresh` says that nobody else wants the lanes as they were: where that
    is safe the sum is then written over them.
    """
    rule = _Over if fresh and owned(lanes) else _Write
    return rule.apply(lanes, y.to(lanes.dtype), weight.to(lanes.dtype))     # type: ignore[no-any-return]


def plain(lanes: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """The same as broadcast products and sums."""
    return (lanes.movedim(0, -2) + weight.unsqueeze(-1) * y.unsqueeze(-2)).movedim(-2, 0)


class _Write(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(lanes: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        x = by_token(lanes)
        return as_lanes(torch.addcmul(x, for_tokens(weight.unsqueeze(-1), x), y.reshape(-1, 1, y.shape[-1])), lanes)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
        y, weight = ctx.saved_tensors
        on = by_token(g)
        by_y = bmm(for_tokens(weight.unsqueeze(-2), on), on).view(y.shape)
        return g, by_y, summed(bmm(on, y.reshape(-1, y.shape[-1], 1)), weight)


class _Over(Function):
    """The same, over the lanes themselves."""

    @staticmethod
    def forward(lanes: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        by_token(lanes).addcmul_(for_tokens(weight.unsqueeze(-1), by_token(lanes)), y.reshape(-1, 1, y.shape[-1]))
        return lanes

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(*inputs[1:])

    backward = _Write.backward
