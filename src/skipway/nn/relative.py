"""Relative positions as a bias on the scores of an attention."""

import math

import torch
from torch import Tensor, nn

from skipway._errors import UsageError


class RelativeBias(nn.Module):
    """B[h, i, j] = W[bucket(j - i), h]: one learned number for each head and each bucket of distances, to be given to an `Attention` as its mask.

    heads       number of heads
    buckets     number of buckets; half of them hold one distance each, the others grow as powers of the distance up to `farthest`, and the last
                holds all that is farther
    causal      all buckets are for what stands before; otherwise half of them are for what stands behind

    Call: (queries, keys) -> (1, heads, queries, keys). One such table for all attentions of a stack is the way of T5.
    Raises UsageError where the buckets do not divide. Source: Raffel et al., T5, 2019, arXiv 1910.10683, section 2.1.
    """

    def __init__(self, heads: int, buckets: int = 32, farthest: int = 128, *, causal: bool = False) -> None:
        super().__init__()
        if buckets < 4 or buckets % 4:
            raise UsageError(f"a relative bias of {buckets} buckets; wanted a multiple of 4")
        self.buckets, self.farthest, self.causal = buckets, farthest, causal
        self.table = nn.Embedding(buckets, heads)

    def bucket(self, away: Tensor) -> Tensor:
        """The bucket of a distance, key minus query."""
        count = self.buckets if self.causal else self.buckets // 2
        behind = torch.zeros_like(away) if self.causal else (away > 0) * count
        near = (-away).clamp(min=0) if self.causal else away.abs()
        exact = count // 2
        growth = torch.log(near.clamp(min=1).float() / exact) / math.log(self.farthest / exact)
        far = (exact + (growth * (count - exact)).long()).clamp(max=count - 1)
        return behind + torch.where(near < exact, near, far)

    def forward(self, queries: int, keys: int) -> Tensor:
        """The bias for so many queries and keys; the last query stands at the last key."""
        place = torch.arange(keys, device=self.table.weight.device)
        away = place[None, :] - place[keys - queries:, None]
        bias: Tensor = self.table(self.bucket(away))
        return bias.permute(2, 0, 1)[None]

    def extra_repr(self) -> str:
        """Buckets and reach."""
        return f"{self.buckets} buckets up to {self.farthest}" + (", causal" if self.causal else "")
