"""Attention written out, for what the fused kernel cannot do: capped scores, scores handed on, weights looked at."""

import torch
from torch import Tensor


def attend(query: Tensor, key: Tensor, value: Tensor, *, scale: float, mask: Tensor | None = None, softcap: float | None = None,
           dropout: float = 0.0, earlier: Tensor | None = None, sinks: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """S = cap tanh(scale Q K^T / cap) + S_earlier,  softmax(S + mask) V; also S, (batch, heads, queries, keys), before the mask.

    query (batch, heads, queries, width); key, value (batch, heads, keys, width). mask: bool, True takes part, or added; where nothing takes part the
    result is 0. sinks, (heads): one more score in each row's softmax, behind which stands the value 0. The softmax is computed in float32 at least.
    """
    scores = scale * (query @ key.transpose(-2, -1))
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if earlier is not None:
        scores = scores + earlier
    seen = scores
    if mask is not None:
        seen = seen.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else seen + mask
    if sinks is not None:
        seen = torch.cat((seen, sinks.to(seen.dtype)[:, None, None].expand(*seen.shape[:-1], 1)), -1)
    weights = torch.softmax(seen, -1, dtype=torch.promote_types(seen.dtype, torch.float32)).to(value.dtype)
    if sinks is not None:
        weights = weights[..., :-1]
    if mask is not None and mask.dtype == torch.bool:
        weights = weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)
    if dropout:
        weights = torch.dropout(weights, dropout, True)
    return weights @ value, scores
