"""gated_read: the mean over lanes of the normed lanes, each channel of each lane behind a gate of its own."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from skipway.ops._autocast import exact, product
from skipway.ops._lanes import as_lanes, by_token
from skipway.ops._mode import again, owned, run


def gated_read(lanes: Tensor, gain: Tensor, down: Tensor, up: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """mean_i sigmoid(U silu(D u / n))_i * u_i, and u = concat_i u_i, with u_i = gain_i * lanes_i / sqrt(mean(lanes_i^2) + eps).

    lanes (n, ..., dim); gain (n, dim), down D (rank, n dim), up U (n dim, rank). Gives (..., dim) and (..., n dim), in float32 at least.
    In plain eager mode the backward is written by hand: the lanes, u and the gates are kept, and backward makes three tensors of their size.
    """
    wide = torch.promote_types(lanes.dtype, torch.float32)
    given = lanes.to(wide), gain.to(wide), down.to(wide), up.to(wide)
    if not owned(lanes):
        return plain(*given, eps)
    return run(_GatedRead, *given, eps)[:2]


def plain(lanes: Tensor, gain: Tensor, down: Tensor, up: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The same, under autograd's own hand."""
    n, dim = gain.shape
    u = F.rms_norm(lanes.movedim(0, -2), (dim,), eps=eps) * gain
    flat = u.flatten(-2)
    gate = product(F.silu(product(flat, down.mT) / n), up.mT).sigmoid()
    return (gate.unflatten(-1, (n, dim)) * u).mean(-2), flat


class _GatedRead(Function):
    @staticmethod
    def forward(lanes: Tensor, gain: Tensor, down: Tensor, up: Tensor, eps: float) -> tuple[Tensor, ...]:
        x, n = by_token(lanes), lanes.shape[0]
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse = (size.square() / x.shape[-1] + eps).rsqrt()
        u = torch.mul(x, inverse, out=x.new_empty(x.shape)).mul_(gain)      # token by token in memory
        with exact(x):
            score = torch.mm(down, u.flatten(1).mT).div_(n)         # few rows times many columns is the faster way round
            gate = torch.mm(F.silu(score).mT, up.mT).sigmoid_().view(x.shape)
        shape = lanes.shape[1:-1]
        return (gate * u).mean(1).view(*shape, -1), u.view(*shape, -1), gate, score, inverse

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:4], *output[1:])
        ctx.eps = inputs[4]

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, on: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        lanes, gain, down, up, u, gate, score, inverse = ctx.saved_tensors
        if g is None:
            g = u.new_zeros(lanes.shape[1:])
        if again():
            return *_twice((lanes, gain, down, up), ctx.eps, g, on), None
        x, u, g = by_token(lanes), u.view(gate.shape), g.reshape(-1, 1, gain.shape[1]) / gain.shape[0]
        with exact(x):
            step = (u * g).mul_(gate)
            step = step.addcmul_(step, gate, value=-1).reshape(-1, down.shape[1])       # by what the gates are the sigmoid of
            by_up = torch.mm(step.mT, F.silu(score).mT)
            by_score = torch.ops.aten.silu_backward(torch.mm(up.mT, step.mT), score).div_(gain.shape[0])
            by_down = torch.mm(by_score, u.reshape(-1, down.shape[1]))
            by_u = step.view(x.shape).copy_(gate).mul_(g).reshape(-1, down.shape[1]).addmm_(by_score.mT, down)
        by_u = (by_u if on is None else by_u.add_(on.reshape(by_u.shape))).view(x.shape)
        normed = x * inverse
        along = by_u * normed
        by_gain = along.sum(0)
        along = along.mul_(gain).sum(-1, keepdim=True)
        by_x = by_u.mul_(gain).addcmul_(normed, along, value=-1 / x.shape[-1]).mul_(inverse)
        return as_lanes(by_x, lanes[0]), by_gain, by_down, by_up, None


def _twice(given: tuple[Tensor, Tensor, Tensor, Tensor], eps: float, g: Tensor, on: Tensor | None) -> tuple[Tensor, ...]:
    """Gradients that can themselves be differentiated."""
    out, u = plain(*given, eps)
    return torch.autograd.grad((out, u), given, (g, torch.zeros_like(u) if on is None else on), create_graph=True)
