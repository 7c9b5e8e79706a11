"""depth_attention: each token's softmax-weighted mean over what earlier layers made."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from skipway.ops._autocast import product
from skipway.ops._mode import again, owned, run


def depth_attention(sources: Sequence[Tensor], query: Tensor, eps: float = 1e-6, scale: float = 1.0, normed: bool = False) -> Tensor:
    """sum_i a_i v_i with a = softmax_i(scale query . u_i) and u_i = v_i / sqrt(mean(v_i^2) + eps); with `normed` the sum is over a_i u_i.

    sources: tensors v_i, (..., dim); query (dim,). Gives (..., dim). Sources are read in place: no stack of them is made or kept.
    """
    wide = torch.promote_types(query.dtype, torch.float32)
    return run(_DepthAttention, eps, scale, normed, query.to(wide), *sources)[0]


def plain(sources: Sequence[Tensor], query: Tensor, eps: float = 1e-6, scale: float = 1.0, normed: bool = False) -> Tensor:
    """The same on a stack."""
    v = torch.stack(tuple(sources))
    u = v / (v.square().mean(-1, keepdim=True) + eps).sqrt()
    a = (scale * (u * query).sum(-1, keepdim=True)).softmax(0)
    return (a * (u if normed else v)).sum(0)


class _DepthAttention(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(eps: float, scale: float, normed: bool, query: Tensor, *sources: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, inverse = _scores(sources, query, eps, scale)
        weights = _weights(logits, inverse, normed).to(sources[0].dtype).unsqueeze(-1)
        out = sources[0] * weights[0]
        for v, a in zip(sources[1:], weights[1:]):
            out = _add(out, v, a)
        return out, logits, inverse

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.eps, ctx.scale, ctx.normed, query, *sources = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(query, *output[1:], *sources)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if g is None:
            return (None,) * len(ctx.needs_input_grad)
        query, logits, inverse, *sources = ctx.saved_tensors
        if again():
            logits, inverse = _scores(sources, query, ctx.eps, ctx.scale)
        a = logits.softmax(0)
        by_a = torch.stack([torch.linalg.vecdot(g, v) for v in sources]).to(query.dtype)
        by_a = by_a * inverse if ctx.normed else by_a
        by_logit = a * (by_a - (a * by_a).sum(0))
        on_query = by_logit * inverse * ctx.scale
        along = by_logit * logits + a * by_a if ctx.normed else by_logit * logits
        along = along * inverse.square() / -query.shape[0]
        by_query = torch.zeros_like(query)
        kind = sources[0].dtype
        weights, on_source, narrow = _weights(logits, inverse, ctx.normed).to(kind).unsqueeze(-1), along.to(kind).unsqueeze(-1), query.to(kind)
        found = []
        for k, v in enumerate(sources):
            by_query = by_query + product(on_query[k].reshape(-1), v.to(query.dtype).reshape(-1, v.shape[-1]))
            by_v = _add(g * weights[k], on_query[k].to(kind).unsqueeze(-1), narrow)
            found.append(_add(by_v, on_source[k], v))
        return None, None, None, by_query, *found


def _add(to: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """to + a b, over `to`, which is ours, where that is safe."""
    return to.addcmul_(a, b) if owned(to) and not torch.is_grad_enabled() else torch.addcmul(to, a, b)


def _scores(sources: Sequence[Tensor], query: Tensor, eps: float, scale: float) -> tuple[Tensor, Tensor]:
    """Logits and the inverse root mean squares, (k, ...)."""
    size = torch.stack([torch.linalg.vector_norm(v, dim=-1, dtype=query.dtype) for v in sources])
    inverse = (size.square() / query.shape[0] + eps).rsqrt()
    return torch.stack([product(v.to(query.dtype), query) for v in sources]) * inverse * scale, inverse


def _weights(logits: Tensor, inverse: Tensor, normed: bool) -> Tensor:
    a = logits.softmax(0)
    return a * inverse if normed else a
