"""read_lanes: what a branch gets of the lanes, a weighted sum."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from skipway.ops._lanes import bmm, by_token, for_tokens, summed, to_each
from skipway.ops._mode import run


def read_lanes(lanes: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """sum_i weight_i lanes_i, and the lanes themselves for `write_lanes`.

    lanes (n, ..., dim); weight (n,), the same for all tokens, or (..., n). Gives (..., dim) in the dtype of the lanes. What goes on
    with the second result instead of `lanes` brings both gradients of the lanes to one place, where they are summed without a tensor of their own.
    """
    return run(_ReadLanes, lanes, weight.to(lanes.dtype))


def plain(lanes: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The same as a broadcast product and a sum."""
    return (lanes.movedim(0, -2) * weight.unsqueeze(-1)).sum(-2), lanes


class _ReadLanes(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(lanes: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        x = by_token(lanes)
        return bmm(for_tokens(weight.unsqueeze(-2), x), x).view(lanes.shape[1:]), lanes.view_as(lanes)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Any) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, on: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        if g is None:
            return None if on is None else on.clone(), None         # a tensor of its own, as what follows is
        lanes, weight = ctx.saved_tensors
        each = to_each(weight, lanes)
        by_lanes = each * g if on is None else torch.addcmul(on, each, g)
        return by_lanes, summed(bmm(by_token(lanes), g.reshape(-1, 1, lanes.shape[-1]).mT), weight)
