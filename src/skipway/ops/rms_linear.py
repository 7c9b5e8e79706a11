"""rms_linear: a few linear functions of a vector that is divided by its root mean square, as gates are made of it."""

import functools
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from skipway.ops._autocast import exact
from skipway.ops._mode import again, owned, run
from skipway.ops._parts import across, down


def rms_linear(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """z_k = (x . weight_k) / sqrt(mean(x^2) + eps).

    x (..., width), weight (k, width). Gives z (..., k), in float32 at least: the normed x is never made, the products are divided.
    """
    z: Tensor = run(_RmsLinear, x, weight, eps)[0]
    return z


def lane_gates(lanes: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`rms_linear` of each lane, weight (k, dim), z (..., n, k), or of all lanes in a row, weight (k, n dim), z (..., k); and the lanes themselves.

    lanes (n, ..., dim). The second result is for `read_mix` or `read_lanes` and for nobody else: it brings both gradients of the lanes to one place,
    where in plain eager mode they are summed over the one that came of the read.
    """
    z, _, same = run(_LaneGates, lanes, weight, eps)
    return z, same


def plain(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`rms_linear`, the norm first."""
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() @ weight.mT


@functools.cache
def _kind(x: torch.dtype, weight: torch.dtype) -> torch.dtype:
    return torch.promote_types(torch.promote_types(x, weight), torch.float32)


def _wide(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    kind = _kind(x.dtype, weight.dtype)
    return x.to(kind), weight.to(kind)


def forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """z, each function of all vectors in a row of memory, and the scale of each vector."""
    wide, rows = _wide(x, weight)
    scale = inverse_rms(wide, eps)
    z = across(rows, wide.reshape(-1, x.shape[-1])).mT.view(*x.shape[:-1], -1)
    return z * scale, scale


def _backward(ctx: Any, x: Tensor, weight: Tensor, z: Tensor, scale: Tensor, g: Tensor, on: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Gradients of x, added to `on`, over it where nothing forbids, and of the weight."""
    if again():
        z, scale = forward(x, weight, ctx.eps)
    scaled = g * scale
    along = ((scaled * z).sum(-1, keepdim=True) * scale).reshape(-1, 1)
    return backward(x, weight, scaled.reshape(-1, g.shape[-1]), along, on)


def backward(x: Tensor, weight: Tensor, scaled: Tensor, along: Tensor, on: Tensor | None) -> tuple[Tensor, Tensor]:
    """on + scaled @ weight - along x / width, (vectors, width), over `on` where nothing forbids; and scaled^T @ x.

    scaled (vectors, k) is the gradient of z times the scale, along (vectors, 1) the sum over k of that times z, times the scale.
    """
    wide, rows = _wide(x, weight)
    flat = wide.reshape(-1, x.shape[-1])
    in_place = owned(x) and not torch.is_grad_enabled()
    if on is None:
        by_x = flat * (along / -x.shape[-1])
    else:
        on = on.reshape(flat.shape).to(flat.dtype)
        by_x = (on.addcmul_ if in_place else on.addcmul)(along, flat, value=-1 / x.shape[-1])
    with exact(x):
        by_x = (by_x.addmm_ if in_place else by_x.addmm)(scaled, rows)
    return by_x.to(x.dtype), down(scaled.mT, flat).to(weight.dtype)


def inverse_rms(x: Tensor, eps: float) -> Tensor:
    """1 / sqrt(mean(x^2) + eps) over the last axis, (..., 1)."""
    size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return (size.square() / x.shape[-1] + eps).rsqrt()


class _RmsLinear(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        return forward(x, weight, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, ...]) -> None:
        z, scale = output[:2]
        ctx.mark_non_differentiable(scale)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:2], z, scale)
        ctx.eps = inputs[2]

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        if g is None:
            return None, None, None
        x, weight, z, scale = ctx.saved_tensors
        by_x, by_weight = _backward(ctx, x, weight, z, scale, g)
        return by_x.view(x.shape), by_weight, None


class _LaneGates(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(lanes: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        return *forward(_vectors(lanes, weight), weight, eps), lanes.view_as(lanes)

    setup_context = _RmsLinear.setup_context

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, _: Any, on: Tensor | None) -> tuple[Tensor | None, ...]:
        if g is None:
            return on, None, None
        lanes, weight, z, scale = ctx.saved_tensors
        x = _vectors(lanes, weight)
        by_x, by_weight = _backward(ctx, x, weight, z, scale, g, None if on is None else _vectors(on, weight))
        return by_x.view(*lanes.shape[1:-1], lanes.shape[0], lanes.shape[-1]).movedim(-2, 0), by_weight, None


def _vectors(lanes: Tensor, weight: Tensor) -> Tensor:
    """(..., n, dim), or (..., n dim) where the weight is of that width."""
    tokens = lanes.movedim(0, -2)
    return tokens if weight.shape[-1] == lanes.shape[-1] else tokens.reshape(*tokens.shape[:-2], -1)
