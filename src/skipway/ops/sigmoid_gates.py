"""sigmoid_gates: how much a sublayer reads of each lane, how much it writes to each, and what else it wants, from all lanes of a token in a row."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from skipway.ops._autocast import exact, product
from skipway.ops._lanes import as_lanes, by_token
from skipway.ops._mode import again, owned, run
from skipway.ops.rms_linear import lane_gates


def sigmoid_gates(lanes: Tensor, weight: Tensor, alpha: Tensor, bias: Tensor, eps: float,
                  least: tuple[float, float] = (0.0, 0.0)) -> tuple[Tensor, ...]:
    """p = sigmoid(t_p) + least_0, q = 2 sigmoid(t_q) + least_1, t_r, and the lanes, with t = alpha_k W u + bias and u = vec(H) / rms(vec(H)).

    lanes H (n, ..., dim), weight W (2n + m, n dim), bias (2n + m), alpha (2) or (3): a scale for the n rows of t_p, the n of t_q and the m of t_r.
    Gives p and q (..., n) and t_r (..., m), in float32 at least. The last result is for `read_mix` or `read_lanes` alone, see `lane_gates`. In plain
    eager mode the backward is written by hand.
    """
    if not owned(lanes):
        return plain(lanes, weight, alpha, bias, eps, least)
    found: tuple[Tensor, ...] = run(_SigmoidGates, lanes, weight, alpha, bias, eps, *least)
    return found[:4]


def plain(lanes: Tensor, weight: Tensor, alpha: Tensor, bias: Tensor, eps: float, least: tuple[float, float] = (0.0, 0.0)) -> tuple[Tensor, ...]:
    """The same, under autograd's own hand."""
    z, lanes = lane_gates(lanes, weight, eps)
    sizes = _sizes(weight, lanes)
    p, q, r = torch.addcmul(bias.to(z.dtype), z, _spread(alpha.to(z.dtype), sizes)).split(sizes, -1)
    return p.sigmoid() + least[0], 2 * q.sigmoid() + least[1], r, lanes


def _sizes(weight: Tensor, lanes: Tensor) -> list[int]:
    n = lanes.shape[0]
    return [n, n, weight.shape[0] - 2 * n]


def _spread(alpha: Tensor, sizes: list[int]) -> Tensor:
    """Each scale for all rows of its group."""
    return torch.cat([a.expand(size) for a, size in zip(alpha, sizes)])


class _SigmoidGates(Function):
    """Inside, gates are (k, tokens): few rows times many columns is the faster product."""

    @staticmethod
    def forward(lanes: Tensor, weight: Tensor, alpha: Tensor, bias: Tensor, eps: float, read: float, write: float) -> tuple[Tensor, ...]:
        kind = torch.promote_types(torch.promote_types(lanes.dtype, weight.dtype), torch.float32)
        x, n = by_token(lanes).flatten(1).to(kind), lanes.shape[0]
        size = torch.linalg.vector_norm(x, dim=-1)
        inverse = (size.square() / x.shape[-1] + eps).rsqrt()
        z = product(weight.to(kind), x.mT).mul_(inverse)
        scale = _spread(alpha.to(kind), _sizes(weight, lanes)).unsqueeze(-1)
        t = torch.addcmul(bias.to(kind).unsqueeze(-1), z, scale)
        s = t[:2 * n].sigmoid()
        p, q = s[:n] + read if read else s[:n], s[n:] * 2
        shape = lanes.shape[1:-1]
        return (*(v.mT.unflatten(0, shape) for v in (p, q.add_(write) if write else q, t[2 * n:])), lanes.view_as(lanes), z, scale, inverse, s)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[4:])
        ctx.save_for_backward(*inputs[:4], *output[4:])
        ctx.rest = inputs[4:]

    @staticmethod
    def backward(ctx: Any, g_p: Tensor, g_q: Tensor, g_r: Tensor, on: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        lanes, weight, alpha, bias, z, scale, inverse, s = ctx.saved_tensors
        if again():
            given = lanes, weight, alpha, bias
            found = plain(*given, ctx.rest[0], ctx.rest[1:])
            return *torch.autograd.grad(found, given, (g_p, g_q, g_r, on), create_graph=True), None, None, None
        n, width = lanes.shape[0], weight.shape[1]
        x = by_token(lanes).flatten(1).to(z.dtype)
        g = torch.ops.aten.sigmoid_backward(torch.cat([g_p.reshape(-1, n).mT, g_q.reshape(-1, n).mT]), s)
        g[n:].mul_(2)
        if g_r.numel():
            g = torch.cat([g, g_r.reshape(-1, g_r.shape[-1]).mT])
        by_bias, along = g.sum(1), g * z
        by_alpha = torch.stack([part.sum() for part in along.sum(1).split(_sizes(weight, lanes))[:len(alpha)]])
        along = (along * scale).sum(0).mul_(inverse.square()).unsqueeze(-1)
        scaled = g.mul_(scale).mul_(inverse)
        with exact(x):
            by_x = by_token(on).flatten(1).to(x.dtype).addmm_(scaled.mT, weight.to(x.dtype)).addcmul_(along, x, value=-1 / width)
            by_weight = scaled @ x
        by_lanes = as_lanes(by_x.view(-1, n, lanes.shape[-1]), lanes[0]).to(lanes.dtype)
        return by_lanes, by_weight.to(weight.dtype), by_alpha.to(alpha.dtype), by_bias.to(bias.dtype), None, None, None
