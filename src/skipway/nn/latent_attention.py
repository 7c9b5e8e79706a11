"""Attention whose keys and values come of one narrow vector a token."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skipway._errors import UsageError
from skipway.nn._masks import band, checked, joined
from skipway.nn.rotary import Rotary


class LatentAttention(nn.Module):
    """Multi-head latent attention: a branch whose keys and values are kept compressed.

        c = N(W_c x)                    k_i = [K_i c, r]        v_i = V_i c                 for head i
        r = rotary(W_r x)               one for all heads
        q_i = [A_i u, rotary(B_i u)]    u = N(W_u x), or x where queries are not compressed

    dim, heads      width of the stream, number of heads
    latent          width of c; query_latent: width of u, or None
    plain, turned   widths of the parts of a head's query and key that rotary positions leave alone and turn; value: width of its values
    bias            on the projections that read the stream and on the output
    rotary          options of `Rotary`
    norm            called with a width, makes the norms N
    scale           factor on the scores, 1 / sqrt(plain + turned) by default
    causal, dropout as in `Attention`

    Raises UsageError where a width is not positive. Source: DeepSeek-AI, DeepSeek-V2, 2024, arXiv 2405.04434, section 2.1.
    """

    role: ClassVar[str] = "self_attention"
    per_sample: ClassVar[Mapping[str, int]] = {"mask": 4, "key_mask": 2, "positions": 2}

    def __init__(self, dim: int, heads: int, latent: int, *, query_latent: int | None = None, plain: int = 128, turned: int = 64, value: int = 128,
                 bias: bool = False, rotary: Mapping[str, Any] | None = None, norm: Callable[[int], nn.Module] = nn.RMSNorm,
                 scale: float | None = None, causal: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        if min(heads, latent, plain, turned, value) < 1:
            raise UsageError(f"a latent attention of {heads} heads, latent={latent}, plain={plain}, turned={turned}, value={value}; "
                             "wanted positive widths")
        self.heads, self.widths, self.causal, self.dropout = heads, (plain, turned), causal, dropout
        self.scale = (plain + turned) ** -0.5 if scale is None else scale
        self.query_down = None if query_latent is None else nn.Linear(dim, query_latent, bias)
        self.query_norm = None if query_latent is None else norm(query_latent)
        self.query = nn.Linear(query_latent or dim, heads * (plain + turned), False)
        self.latent = nn.Linear(dim, latent, bias)
        self.turned = nn.Linear(dim, turned, bias)
        self.latent_norm = norm(latent)
        self.key = nn.Linear(latent, heads * plain, False)
        self.value = nn.Linear(latent, heads * value, False)
        self.output = nn.Linear(heads * value, dim, bias)
        self.rotary = Rotary(turned, **(rotary or {}))
        self.inner: nn.Module | None = None

    def weights(self, kind: str) -> Iterable[Tensor]:
        """Its matrices by kind: query, key, value, output."""
        return [getattr(self, kind).weight] if kind in ("query", "key", "value", "output") else []

    def inner_norm(self, make: Callable[[int], nn.Module]) -> None:
        """Puts a norm before the output projection."""
        self.inner = make(self.output.in_features)

    def forward(self, x: Tensor, *, mask: Tensor | None = None, key_mask: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """(batch, tokens, dim) -> (batch, tokens, dim); masks and positions as in `Attention`."""
        u = x if self.query_down is None or self.query_norm is None else self.query_norm(self.query_down(x))
        c = self.latent_norm(self.latent(x))
        plain, turning = self._heads(self.query(u)).split(self.widths, -1)
        key, value, turned = self._heads(self.key(c)), self._heads(self.value(c)), self.turned(x).unsqueeze(-3)
        table = self.rotary.table(torch.arange(x.shape[-2], device=x.device) if positions is None else positions)
        turned = self.rotary(turned, table=table).expand(*key.shape[:-1], -1)
        q, k = torch.cat((plain, self.rotary(turning, table=table)), -1), torch.cat((key, turned), -1)
        masks = checked(mask, key_mask)
        alone = self.causal and all(m is None for m in masks)
        seen = None if alone else joined([*masks, band(x.shape[-2], x.shape[-2], self.causal, None, x.device)])
        seen = seen if seen is None or seen.dtype == torch.bool else seen.to(q.dtype)
        y = F.scaled_dot_product_attention(q, k, value, seen, self.dropout if self.training else 0.0, alone, scale=self.scale)
        y = y.transpose(1, 2).flatten(-2)
        out: Tensor = self.output(y if self.inner is None else self.inner(y))
        return out

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def extra_repr(self) -> str:
        """Heads and widths."""
        return f"{self.heads} heads of {self.widths[0]} + {self.widths[1]}" + (", causal" if self.causal else "")
