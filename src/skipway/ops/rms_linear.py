"""rms_linear: a few linear functions of a vector that is divided by its root mean square, as gates are made of it."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from skipway.ops._autocast import exact, product
from skipway.ops._mode import again, owned, run


def rms_linear(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """z_k = (x . weight_k) / sqrt(mean(x^2) + eps), and x itself.

    x (..., width), weight (k, width). Gives z (..., k), in float32 at least: the normed x is never made, the products are divided. What goes on
    with the second result instead of `x` brings both gradients of x to one place, where they are summed without a tensor of their own.
    """
    z, _, same = run(_RmsLinear, x, weight, eps)
    return z, same


def plain(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The same, the norm first."""
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() @ weight.mT, x


def _wide(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    kind = torch.promote_types(torch.promote_types(x.dtype, weight.dtype), torch.float32)
    return x.to(kind), weight.to(kind)


def _forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """z, and the scale of each vector."""
    wide, rows = _wide(x, weight)
    size = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    scale = (size.square() / x.shape[-1] + eps).rsqrt()
    # Few rows times many columns is the faster way round, and leaves each function of all tokens in a row.
    z = product(rows, wide.reshape(-1, x.shape[-1]).mT).mT.view(*x.shape[:-1], -1)
    return z * scale, scale


class _RmsLinear(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        return *_forward(x, weight, eps), x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, Tensor, Tensor]) -> None:
        z, scale, _ = output
        ctx.mark_non_differentiable(scale)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:2], z, scale)
        ctx.eps = inputs[2]

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, _: Any, on: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        if g is None:
            return on, None, None
        x, weight, z, scale = ctx.saved_tensors
        if again():
            z, scale = _forward(x, weight, ctx.eps)
        wide, rows = _wide(x, weight)
        flat, scaled = wide.reshape(-1, x.shape[-1]), (g * scale).reshape(-1, g.shape[-1])
        along = ((g * z).sum(-1, keepdim=True) * scale.square() / -x.shape[-1]).reshape(-1, 1)
        with exact(x):
            by_x = scaled @ rows if on is None else torch.addmm(on.reshape(flat.shape).to(flat.dtype), scaled, rows)
            by_weight = scaled.mT @ flat
        by_x = by_x.addcmul_(along, flat) if owned(x) else torch.addcmul(by_x, along, flat)
        return by_x.view(x.shape).to(x.dtype), by_weight.to(weight.dtype), None
