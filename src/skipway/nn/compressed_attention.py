"""Attention to a window of tokens and, beyond it, to summaries of groups of tokens."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skipway._errors import UsageError
from skipway.nn._masks import band, checked, joined
from skipway.nn.rotary import Rotary
from skipway.ops.attend import attend

Norm = Callable[[int], nn.Module]


class Compressor(nn.Module):
    """One vector for every `rate` tokens: N(sum_t softmax_t(G x_t + b_t) * V x_t), channel by channel, turned by the position of its first token.

    overlap     G x and V x are twice as wide: a summary takes the second half of its own tokens and the first half of those of the group before
    """

    def __init__(self, dim: int, width: int, rate: int, overlap: bool, rotary: Rotary, norm: Norm) -> None:
        super().__init__()
        self.width, self.rate, self.overlap, self.rotary = width, rate, overlap, rotary
        wide = (1 + overlap) * width
        self.value, self.gate = nn.Linear(dim, wide, False), nn.Linear(dim, wide, False)
        self.bias = nn.Parameter(torch.zeros(rate, wide))
        self.norm = norm(width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, dim) -> (batch, tokens / rate rounded down, width)."""
        groups = x.shape[1] // self.rate
        x = x[:, :groups * self.rate].unflatten(1, (groups, self.rate)) if groups else x[:, :0].unflatten(1, (0, self.rate))
        value, gate = self.value(x), self.gate(x) + self.bias
        if self.overlap:
            value, gate = self._with_earlier(value, 0.0), self._with_earlier(gate, float("-inf"))
        weights = gate.softmax(2, dtype=torch.float32).to(value.dtype)
        return turn(self.rotary, self.norm((value * weights).sum(2)), torch.arange(groups, device=x.device) * self.rate)

    def _with_earlier(self, x: Tensor, empty: float) -> Tensor:
        earlier, own = x.split(self.width, -1)
        return torch.cat((F.pad(earlier, (0, 0, 0, 0, 1, 0), value=empty)[:, :x.shape[1]], own), 2)


class Chooser(nn.Module):
    """Which summaries a token looks at: those of the `top` largest scores sum_h w_h relu(q_h . k), k by a compressor of its own.

    The choice has no gradient, so what it is made of learns from another loss than that of the tokens, or not at all.
    """

    def __init__(self, dim: int, query_latent: int, heads: int, width: int, top: int, rate: int, rotary: Rotary, norm: Norm) -> None:
        super().__init__()
        self.heads, self.width, self.top, self.rotary = heads, width, top, rotary
        self.keys = Compressor(dim, width, rate, True, rotary, norm)
        self.query = nn.Linear(query_latent, heads * width, False)
        self.weigh = nn.Linear(dim, heads, False)

    def forward(self, x: Tensor, u: Tensor, positions: Tensor, seen: Tensor) -> Tensor:
        """(batch, tokens, summaries), bool: those of `seen`, which a token may look at, that are chosen."""
        wide = torch.promote_types(x.dtype, torch.float32)
        q = turn(self.rotary, self.query(u).unflatten(-1, (self.heads, self.width)).transpose(1, 2), positions)
        found = (q.to(wide) @ self.keys(x).to(wide).mT.unsqueeze(1)).relu() * self.width ** -0.5
        scores = (found * (self.weigh(x).to(wide).mT * self.heads ** -0.5).unsqueeze(-1)).sum(1)
        best = scores.masked_fill(~seen, float("-inf")).topk(min(self.top, scores.shape[-1]), -1).indices
        return seen & torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True)


class CompressedAttention(nn.Module):
    """Attention of many heads to one key that is the value, too: a branch.

        k = v = N(W_k x), its last part turned          q_h = Q_h u / rms(Q_h u), likewise          u = N(W_u x)
        y = W_o [A_1 o_1, A_2 o_2, ...]                 o_g: the results of a group of heads, turned back

    dim, heads, head_dim    width of the stream, number of heads, width of one
    query_latent            width of u
    window                  a token sees those less than this away
    turned                  width of the part of a head that positions turn; rotary: options of its `Rotary`
    groups, group_width     of heads, and the width of A_g o_g
    rate                    beyond the window, a token sees one `Compressor` summary for every so many tokens that are past; None: nothing
    chosen                  options heads, width, top of a `Chooser` among the summaries, which then overlap; None: all
    norm, eps               makes the norms N; of the queries' norm, which has no gain
    dropout                 of the attention weights

    Every head has a sink, as in `Attention`. Raises UsageError where heads do not divide into groups.
    Source: DeepSeek-AI, DeepSeek-V4, 2026, sections 2.3.1 and 2.3.2; its release in transformers.
    """

    role: ClassVar[str] = "self_attention"
    per_sample: ClassVar[Mapping[str, int]] = {"mask": 4, "key_mask": 2, "positions": 2}

    def __init__(self, dim: int, heads: int, head_dim: int, *, query_latent: int, window: int, turned: int, groups: int = 1, group_width: int = 1024,
                 rate: int | None = None, chosen: Mapping[str, int] | None = None, rotary: Mapping[str, Any] | None = None,
                 norm: Norm = nn.RMSNorm, eps: float = 1e-6, dropout: float = 0.0) -> None:
        super().__init__()
        if heads % groups or (chosen is not None and rate is None):
            raise UsageError(f"a compressed attention of {heads} heads in {groups} groups, rate={rate}, chosen={chosen}; wanted groups that divide "
                             "the heads, and a choice only among summaries")
        self.heads, self.head_dim, self.window, self.groups, self.rate = heads, head_dim, window, groups, rate
        self.eps, self.dropout = eps, dropout
        self.query_down, self.query_norm = nn.Linear(dim, query_latent, False), norm(query_latent)
        self.query = nn.Linear(query_latent, heads * head_dim, False)
        self.value, self.value_norm = nn.Linear(dim, head_dim, False), norm(head_dim)
        inside = heads * head_dim // groups
        self.mix = nn.Parameter(torch.empty(groups * group_width, inside).uniform_(-1, 1) * inside ** -0.5)         # A_1, A_2, ... below each other
        self.output = nn.Linear(groups * group_width, dim, False)
        self.sink = nn.Parameter(torch.zeros(heads))
        self.inner: nn.Module | None = None
        self.rotary = Rotary(turned, **{"interleaved": True, **(rotary or {})})
        self.summaries = None if rate is None else Compressor(dim, head_dim, rate, chosen is not None, self.rotary, norm)
        self.chooser = None if chosen is None or rate is None else Chooser(dim, query_latent, rate=rate, rotary=self.rotary, norm=norm, **chosen)

    def weights(self, kind: str) -> Iterable[Tensor]:
        """Its matrices by kind: query, value (which is the key, too), output."""
        return [getattr(self, kind).weight] if kind in ("query", "value", "output") else []

    def inner_norm(self, make: Norm) -> None:
        """Puts a norm before the output projection."""
        self.inner = make(self.output.in_features)

    def forward(self, x: Tensor, *, mask: Tensor | None = None, key_mask: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """(batch, tokens, dim) -> (batch, tokens, dim); masks are of the tokens within the window, positions as in `Attention`."""
        tokens = x.shape[1]
        places = torch.arange(tokens, device=x.device) if positions is None else positions
        u = self.query_norm(self.query_down(x))
        q = self.query(u).unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)
        q = turn(self.rotary, F.rms_norm(q, (self.head_dim,), eps=self.eps), places)
        k = turn(self.rotary, self.value_norm(self.value(x)).unsqueeze(1), places)
        seen = joined([*checked(mask, key_mask), band(tokens, tokens, True, self.window, x.device)])
        if self.summaries is not None and self.rate is not None:
            k = torch.cat((k, self.summaries(x).unsqueeze(1)), 2)
            past = torch.arange(tokens // self.rate, device=x.device) < ((places + 1) // self.rate).unsqueeze(-1)
            past = past.expand(len(x), tokens, -1)
            if self.chooser is not None:
                past = self.chooser(x, u, places, past)
            seen = _beside(seen, past.unsqueeze(1))
        y, _ = attend(q, k, k, scale=self.head_dim ** -0.5, mask=seen, dropout=self.dropout if self.training else 0.0, sinks=self.sink)
        y = turn(self.rotary, y, -places).transpose(1, 2).flatten(-2).unflatten(-1, (self.groups, -1))
        y = torch.einsum("btgi,goi->btgo", y, self.mix.unflatten(0, (self.groups, -1))).flatten(-2)
        out: Tensor = self.output(y if self.inner is None else self.inner(y))
        return out

    def extra_repr(self) -> str:
        """Heads, window and rate."""
        return f"{self.heads} heads of {self.head_dim}, window={self.window}" + ("" if self.rate is None else f", rate={self.rate}")


def turn(rotary: Rotary, x: Tensor, positions: Tensor) -> Tensor:
    """The last channels of x turned, in float32 at least."""
    rest, last = x.split([x.shape[-1] - rotary.width, rotary.width], -1)
    wide = last.to(torch.promote_types(x.dtype, torch.float32))
    return torch.cat((rest, rotary(wide, positions).to(x.dtype)), -1)


def _beside(seen: Tensor | None, more: Tensor) -> Tensor:
    """A mask of tokens and, right of it, one of summaries."""
    if seen is None:
        raise UsageError("a compressed attention without a window")
    if seen.dtype != torch.bool:
        more = torch.zeros_like(more, dtype=seen.dtype).masked_fill(~more, float("-inf"))
    seen = seen.expand(more.shape[0], seen.shape[1] if seen.ndim == 4 else 1, *seen.shape[-2:])
    return torch.cat((seen, more.expand(-1, seen.shape[1], -1, -1)), -1)
