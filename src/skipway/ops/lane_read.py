"""lane_read: what a sublayer reads of lanes, by gates made of all lanes of a token; how much it will write to each; and the lanes, mixed or not."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from skipway.ops import rms_linear, sinkhorn
from skipway.ops._autocast import exact
from skipway.ops._lanes import as_lanes, bmm, by_token
from skipway.ops._mode import again, batched, owned
from skipway.ops._sole import sole
from skipway.ops.read_lanes import read_lanes
from skipway.ops.read_mix import read_mix


def lane_read(lanes: Tensor, weight: Tensor, alpha: Tensor, bias: Tensor, eps: float, least: tuple[float, float] = (0.0, 0.0),
              mixing: tuple[int, float, bool] | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """sum_i p_i H_i, q, and the lanes H, or with mixing sum_i R_ji H_i.

        t = alpha_k W u + bias, u = vec(H) / rms(vec(H))     p = sigmoid(t_p) + least_0     q = 2 sigmoid(t_q) + least_1     R = sinkhorn(mat(t_R))

    lanes H (n, ..., dim); weight W (2n, n dim), bias (2n) and alpha (2), a scale for the n rows of t_p and the n of t_q; with mixing (iterations,
    floor, whether R is transposed in t_R) n^2 more rows and a third scale. Gives (..., dim), q (..., n) in float32 at least, and (n, ..., dim): to
    `write_lanes`, or if mixed to `write_over`. In plain eager mode it is one operation whose backward is written by hand: the lanes are kept, and
    backward makes one tensor of their size, or without mixing none where the gradient of the lanes is its alone.
    """
    if not owned(lanes):
        return plain(lanes, weight, alpha, bias, eps, least, mixing)
    found: tuple[Tensor, Tensor, Tensor] = _LaneRead.apply(lanes, weight, alpha, bias, eps, least, mixing)
    return found


def plain(lanes: Tensor, weight: Tensor, alpha: Tensor, bias: Tensor, eps: float, least: tuple[float, float] = (0.0, 0.0),
          mixing: tuple[int, float, bool] | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The same, one operation after another."""
    n = lanes.shape[0]
    z, lanes = rms_linear.lane_gates(lanes, weight, eps)
    p, q, r = torch.addcmul(bias.to(z.dtype), z, _spread(alpha.to(z.dtype), n)).split([n, n, len(weight) - 2 * n], -1)
    p, q = p.sigmoid() + least[0], 2 * q.sigmoid() + least[1]
    if mixing is None:
        x, lanes = read_lanes(lanes, p)
        return x, q, lanes
    iterations, floor, transposed = mixing
    logits = r.unflatten(-1, (n, n))
    x, mixed = read_mix(lanes, p, sinkhorn.sinkhorn(logits.mT if transposed else logits, iterations, floor))
    return x, q, mixed


def _spread(alpha: Tensor, n: int) -> Tensor:
    """Each scale for all rows of its group: n of p, n of q, n^2 of R."""
    groups = torch.cat([alpha, alpha[2:].expand(n - 1)]) if len(alpha) > 2 else alpha
    return groups.repeat_interleave(n)


def _gathered(rows: Tensor, alpha: Tensor, n: int) -> Tensor:
    """The sums over the rows of each group."""
    groups = rows.view(-1, n).sum(1)
    return torch.cat([groups[:2], groups[2:].sum(0, keepdim=True)]) if len(alpha) > 2 else groups


class _LaneRead(Function):
    """Inside, gates are (k, tokens): few rows times many columns is the faster product."""

    @staticmethod
    def forward(ctx: Any, lanes: Tensor, weight: Tensor, alpha: Tensor, bias: Tensor, eps: float, least: tuple[float, float],
                mixing: tuple[int, float, bool] | None) -> tuple[Tensor, ...]:
        n, tokens = lanes.shape[0], by_token(lanes)
        z, inverse = rms_linear.forward(tokens.flatten(1), weight, eps)
        z, inverse, kind = z.mT, inverse.mT, z.dtype
        scale = _spread(alpha.to(kind), n).unsqueeze(-1)
        t = torch.addcmul(bias.to(kind).unsqueeze(-1), z, scale)
        gates = t[:2 * n].sigmoid()
        p, q = gates[:n], gates[n:] * 2
        p, q = p + least[0] if least[0] else p, q.add_(least[1]) if least[1] else q
        each = p.to(lanes.dtype).mT.unsqueeze(1)
        read = bmm(each, tokens).view(lanes.shape[1:])
        onward, logits, mixer, sums = lanes.view_as(lanes), None, None, None
        if mixing:
            logits = t[2 * n:].view(n, n, -1)
            logits = logits.transpose(0, 1).contiguous() if mixing[2] else logits
            mixer, sums = sinkhorn.forward(logits, *mixing[:2])
            # No view to autograd, which would copy the mixed lanes before they are written over.
            onward = as_lanes(bmm(mixer.permute(2, 0, 1).to(lanes.dtype), tokens), lanes[0]).data
        ctx.save_for_backward(lanes, weight, alpha, bias, z, scale, inverse, gates, each, logits, mixer, sums)
        ctx.eps, ctx.least, ctx.mixing = eps, least, mixing
        return read, q.mT.unflatten(0, lanes.shape[1:-1]), onward

    @staticmethod
    def backward(ctx: Any, g_read: Tensor, g_q: Tensor, on: Tensor) -> tuple[Tensor | None, ...]:
        lanes, weight, alpha, bias, z, scale, inverse, gates, each, logits, mixer, sums = ctx.saved_tensors
        if again() or batched() or not owned(g_read):
            with torch.enable_grad():
                given = [t if again() else t.detach().requires_grad_() for t in (lanes, weight, alpha, bias)]
                found = plain(given[0], given[1], given[2], given[3], ctx.eps, ctx.least, ctx.mixing)
            return *torch.autograd.grad(found, given, (g_read, g_q, on), create_graph=again()), None, None, None
        in_place = not ctx.mixing and sole(on)          # asked before a view is made of it
        n, tokens, on, g_read = lanes.shape[0], by_token(lanes), by_token(on), g_read.reshape(-1, 1, lanes.shape[-1])
        g_p, g_q = bmm(g_read, tokens.mT).squeeze(1).mT.to(z.dtype), g_q.reshape(-1, n).mT
        g = torch.ops.aten.sigmoid_backward(torch.cat([g_p, g_q + g_q]), gates)
        if ctx.mixing:
            by_mixer = bmm(on, tokens.mT).permute(1, 2, 0).to(z.dtype).contiguous()
            by_logits = sinkhorn.backward(by_mixer, logits, mixer, sums, ctx.mixing[1])
            g = torch.cat([g, (by_logits.transpose(0, 1) if ctx.mixing[2] else by_logits).reshape(n * n, -1)])
            by_tokens = None
        else:
            by_tokens = (on.addcmul_ if in_place and on.is_contiguous() else on.addcmul)(each.mT, g_read)
        along = g * z
        by_bias, by_alpha = g.sum(1), _gathered(along.sum(1), alpha, n)
        along = ((along * scale).sum(0, keepdim=True) * inverse.square()).mT
        scaled = g.mul_(scale).mul_(inverse).mT
        by_x, by_weight = rms_linear.backward(tokens.flatten(1), weight, scaled, along, by_tokens)
        by_tokens = by_x.view(tokens.shape)
        if ctx.mixing:
            with exact(lanes):
                by_tokens.baddbmm_(mixer.permute(2, 1, 0).to(lanes.dtype).contiguous(), on)
            by_tokens.addcmul_(each.mT, g_read)
        # No view to autograd, for then it would be held twice where the next backward asks.
        return as_lanes(by_tokens, lanes[0]).detach(), by_weight, by_alpha.to(alpha.dtype), by_bias.to(bias.dtype), None, None, None
