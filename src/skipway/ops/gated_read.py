"""gated_read: the mean over lanes of the normed lanes, each channel of each lane behind a gate of its own."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from skipway.ops._autocast import exact, product
from skipway.ops._lanes import as_lanes, by_token
from skipway.ops._mode import again, batched, owned
from skipway.ops.rms_linear import inverse_rms


def gated_read(lanes: Tensor, gain: Tensor, down: Tensor, up: Tensor, inject: Tensor | None, eps: float) -> tuple[Tensor, Tensor | None]:
    """mean_i sigmoid(U silu(D u / n))_i * u_i, and W u / n, with u = concat_i u_i and u_i = gain_i * lanes_i / sqrt(mean(lanes_i^2) + eps).

    lanes (n, ..., dim); gain (n, dim), down D (rank, n dim), up U (n dim, rank), inject W (m, n dim) or None. Gives (..., dim) and (..., m), or
    None, in float32 at least. In plain eager mode the backward is written by hand: the lanes, u and the gates are kept, and backward makes two
    tensors of their size.
    """
    wide = torch.promote_types(lanes.dtype, torch.float32)
    given = lanes.to(wide), gain.to(wide), down.to(wide), up.to(wide), None if inject is None else inject.to(wide)
    found: tuple[Tensor, Tensor | None] = _GatedRead.apply(*given, eps) if owned(lanes) else plain(*given, eps)
    return found


def plain(lanes: Tensor, gain: Tensor, down: Tensor, up: Tensor, inject: Tensor | None, eps: float) -> tuple[Tensor, Tensor | None]:
    """The same, under autograd's own hand."""
    n, dim = gain.shape
    u = F.rms_norm(lanes.movedim(0, -2), (dim,), eps=eps) * gain
    flat = u.flatten(-2)
    gate = product(F.silu(product(flat, down.mT) / n), up.mT).sigmoid()
    return (gate.unflatten(-1, (n, dim)) * u).mean(-2), None if inject is None else product(flat, inject.mT) / n


class _GatedRead(Function):
    @staticmethod
    def forward(ctx: Any, lanes: Tensor, gain: Tensor, down: Tensor, up: Tensor, inject: Tensor | None, eps: float) -> tuple[Tensor, Tensor | None]:
        x, n = by_token(lanes), lanes.shape[0]
        inverse = inverse_rms(x, eps)
        u = torch.mul(x, inverse, out=x.new_empty(x.shape)).mul_(gain)      # token by token in memory
        with exact(x):          # few rows times many columns is the faster way round
            score = torch.mm(down, u.flatten(1).mT).div_(n)
            write = None if inject is None else torch.mm(inject, u.flatten(1).mT).div_(n).mT.unflatten(0, lanes.shape[1:-1])
            gate = torch.bmm(F.silu(score).mT.expand(n, -1, -1), up.view(n, -1, len(down)).mT).sigmoid_()       # lane by lane
        read = (gate * u.transpose(0, 1)).mean(0)
        ctx.save_for_backward(lanes, gain, down, up, inject, u, gate, score, inverse)
        ctx.eps = eps
        return read.view(lanes.shape[1:]), write

    @staticmethod
    def backward(ctx: Any, g: Tensor, by_write: Tensor | None) -> tuple[Tensor | None, ...]:
        lanes, gain, down, up, inject, u, gate, score, inverse = ctx.saved_tensors
        if again() or batched() or not owned(g):
            return *_again((lanes, gain, down, up, inject), ctx.eps, g, by_write), None
        x, n, gate = by_token(lanes), len(gain), gate.transpose(0, 1)
        g, rows = g.reshape(-1, 1, x.shape[-1]) / n, u.flatten(1)
        step = u * g
        torch.ops.aten.sigmoid_backward.grad_input(step, gate, grad_input=step)
        flat = step.flatten(1)
        with exact(x):
            by_up = torch.mm(flat.mT, F.silu(score).mT)
            by_score = torch.ops.aten.silu_backward(torch.mm(up.mT, flat.mT), score).div_(n)
            by_down, by_inject = torch.mm(by_score, rows), None
            by_u = torch.mul(gate, g, out=step)
            flat.addmm_(by_score.mT, down)
            if inject is not None and by_write is not None:
                by_write = by_write.reshape(-1, len(inject)) / n
                by_inject = torch.mm(by_write.mT, rows)
                flat.addmm_(by_write, inject)
            along = (by_u * x).transpose(0, 1)
            by_gain = torch.bmm(inverse.permute(1, 2, 0), along).squeeze(1)
            along = torch.bmm(gain.unsqueeze(1), along.mT).permute(2, 0, 1) * inverse.square()
        by_x = by_u.mul_(gain).addcmul_(x, along, value=-1 / x.shape[-1]).mul_(inverse)
        return as_lanes(by_x, lanes[0]), by_gain, by_down, by_up, by_inject, None


def _again(given: tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None], eps: float, g: Tensor, by_write: Tensor | None) -> tuple[Tensor | None, ...]:
    """Gradients by the plain formula, which can be differentiated, and batched."""
    with torch.enable_grad():
        at = [t if again() else t.detach().requires_grad_() for t in given if t is not None]
        read, write = plain(at[0], at[1], at[2], at[3], at[4] if len(at) > 4 else None, eps)
    made, by_made = ([read], [g]) if write is None else ([read, write], [g, by_write])
    found = torch.autograd.grad(made, at, by_made, create_graph=again())
    return found if len(at) > 4 else (*found, None)
