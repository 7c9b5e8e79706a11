"""read_mix: what a branch gets of the lanes, and the lanes mixed, to which its result will be written."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from skipway.ops._lanes import as_lanes, bmm, by_token, for_tokens, in_rows, mm, mv, summed
from skipway.ops._mode import owned, run
from skipway.ops._parts import across


def read_mix(lanes: Tensor, weight: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """sum_i weight_i lanes_i, and the mixed lanes sum_i matrix_ji lanes_i, for `write_over`.

    lanes (n, ..., dim); weight (n,), matrix (n, n), the same for all tokens, or with the token axes before. Gives (..., dim) and (n, ..., dim),
    in the dtype of the lanes. Only the lanes are kept for backward, which makes one tensor of their size.
    """
    weight, matrix = weight.to(lanes.dtype), matrix.to(lanes.dtype)
    rule = _ReadMixRows if in_rows(lanes, weight.dim() == 1 and matrix.dim() == 2) else _ReadMix
    return run(rule, lanes, weight, matrix)


def plain(lanes: Tensor, weight: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The same as broadcast products and sums."""
    x = lanes.movedim(0, -2)
    return (weight.unsqueeze(-1) * x).sum(-2), (matrix.unsqueeze(-1) * x.unsqueeze(-3)).sum(-2).movedim(-2, 0)


class _ReadMix(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(lanes: Tensor, weight: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        x = by_token(lanes)
        return bmm(for_tokens(weight.unsqueeze(-2), x), x).view(lanes.shape[1:]), _alone(as_lanes(bmm(for_tokens(matrix, x), x), lanes[0]))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor, on: Tensor) -> tuple[Tensor, ...]:
        lanes, weight, matrix = ctx.saved_tensors
        x, on, g = by_token(lanes), by_token(on), g.reshape(-1, 1, lanes.shape[-1])
        weights = for_tokens(weight.unsqueeze(-2), x).mT
        by_lanes = bmm(for_tokens(matrix, x).mT, on)
        by_lanes = by_lanes.addcmul_(weights, g) if owned(lanes) else torch.addcmul(by_lanes, weights, g)
        return as_lanes(by_lanes, lanes[0]), summed(bmm(x, g.mT), weight), summed(bmm(on, x.mT), matrix)


class _ReadMixRows(Function):
    """The same for coefficients that all tokens share, on lanes that come first in memory."""

    generate_vmap_rule = True

    @staticmethod
    def forward(lanes: Tensor, weight: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        rows = lanes.reshape(lanes.shape[0], -1)
        made = mm(torch.cat([weight.unsqueeze(0), matrix]), rows).view(-1, *lanes.shape[1:])
        return _alone(made[0]), _alone(made[1:])

    setup_context = _ReadMix.setup_context

    @staticmethod
    def backward(ctx: Any, g: Tensor, on: Tensor) -> tuple[Tensor, ...]:
        lanes, weight, matrix = ctx.saved_tensors
        rows, flat = lanes.reshape(lanes.shape[0], -1), g.reshape(-1)
        by_mixed = on.reshape(matrix.shape[0], -1)
        by_rows, weights = mm(matrix.mT, by_mixed), weight.unsqueeze(-1)
        by_rows = by_rows.addcmul_(weights, flat) if owned(lanes) else torch.addcmul(by_rows, weights, flat)
        return by_rows.view(lanes.shape), mv(rows, flat), across(by_mixed, rows)


def _alone(part: Tensor) -> Tensor:
    """What a product made, or a part of it, as no view to autograd, which would copy the mixed lanes before they are written over."""
    return part.data if owned(part) else part
