"""write_over: write_lanes on mixed lanes that nobody else wants, over them where that is safe."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from skipway.ops._lanes import as_lanes, for_tokens
from skipway.ops._mode import owned, run
from skipway.ops.write_lanes import by_branch


def write_over(mixed: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """mixed_j + weight_j y.

    mixed (tokens, n, dim), as `read_mix` gives it, y (..., dim); weight (n,), or (..., n). Gives lanes, (n, ..., dim), in the dtype of mixed, which
    is no longer what it was: in plain eager mode the sum is written over it.
    """
    rule = _Over if owned(mixed) else _Write
    return as_lanes(run(rule, mixed, y.to(mixed.dtype), weight.to(mixed.dtype)), y)


def plain(mixed: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """The same as broadcast products and sums."""
    return (mixed.view(*y.shape[:-1], *mixed.shape[1:]) + weight.unsqueeze(-1) * y.unsqueeze(-2)).movedim(-2, 0)


class _Write(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(mixed: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return torch.addcmul(mixed, for_tokens(weight.unsqueeze(-1), mixed), y.reshape(-1, 1, y.shape[-1]))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
        y, weight = ctx.saved_tensors
        return g, *by_branch(as_lanes(g, y), y, weight)


class _Over(Function):
    @staticmethod
    def forward(mixed: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return mixed.addcmul_(for_tokens(weight.unsqueeze(-1), mixed), y.reshape(-1, 1, y.shape[-1]))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(*inputs[1:])

    backward = _Write.backward
