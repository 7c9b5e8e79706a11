"""read_mix: what a branch gets of the lanes, and the lanes mixed, to which its result will be written."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from skipway.ops._autocast import exact
from skipway.ops._lanes import as_lanes, bmm, by_token, for_tokens, in_rows, mm, mv, summed
from skipway.ops._mode import owned, run


def read_mix(lanes: Tensor, weight: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """sum_i weight_i lanes_i, and the mixed lanes sum_i matrix_ji lanes_i, token by token, for `write_over`.

    lanes (n, ..., dim); weight (n,), matrix (n, n), the same for all tokens, or with the token axes before. Gives (..., dim) and (tokens, n, dim),
    in the dtype of the lanes. Only the lanes are kept for backward, which makes one tensor of their size.
    """
    weight, matrix = weight.to(lanes.dtype), matrix.to(lanes.dtype)
    rule = _ReadMixRows if in_rows(lanes, weight.dim() == 1 and matrix.dim() == 2) else _ReadMix
    return run(rule, lanes, weight, matrix)


def plain(lanes: Tensor, weight: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The same as broadcast products and sums."""
    x = lanes.movedim(0, -2)
    return (weight.unsqueeze(-1) * x).sum(-2), (matrix.unsqueeze(-1) * x.unsqueeze(-3)).sum(-2).flatten(0, -3)


class _ReadMix(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(lanes: Tensor, weight: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        x = by_token(lanes)
        return bmm(for_tokens(weight.unsqueeze(-2), x), x).view(lanes.shape[1:]), bmm(for_tokens(matrix, x), x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor, on: Tensor) -> tuple[Tensor, ...]:
        lanes, weight, matrix = ctx.saved_tensors
        x, g = by_token(lanes), g.reshape(-1, 1, lanes.shape[-1])
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
        return mv(rows.mT, weight).view(lanes.shape[1:]), _mixed(rows, matrix, lanes.shape[-1])

    setup_context = _ReadMix.setup_context

    @staticmethod
    def backward(ctx: Any, g: Tensor, on: Tensor) -> tuple[Tensor, ...]:
        lanes, weight, matrix = ctx.saved_tensors
        rows, flat = lanes.reshape(lanes.shape[0], -1), g.reshape(-1)
        by_mixed = on.movedim(-2, 0).reshape(matrix.shape[0], -1)
        by_rows, weights = mm(matrix.mT, by_mixed), weight.unsqueeze(-1)
        by_rows = by_rows.addcmul_(weights, flat) if owned(lanes) else torch.addcmul(by_rows, weights, flat)
        return by_rows.view(lanes.shape), mv(rows, flat), mm(by_mixed, rows.mT)


def _mixed(rows: Tensor, matrix: Tensor, dim: int) -> Tensor:
    """(tokens, n, dim), with lanes first in memory; where it will be written over, no view, for autograd would copy it."""
    n, tokens = matrix.shape[0], rows.shape[1] // dim
    if not owned(rows):
        return mm(matrix, rows).view(n, tokens, dim).movedim(0, -2)
    made = rows.new_empty_strided((tokens, n, dim), (dim, tokens * dim, 1))
    with exact(rows):
        torch.mm(matrix, rows, out=made.movedim(-2, 0).view(n, -1))
    return made
