"""Multi-head attention over a stream, or from a stream to a context."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skipway._errors import ShapeMismatch, UsageError
from skipway.nn._masks import band, checked, joined
from skipway.nn.rotary import Rotary
from skipway.ops.attend import attend


class Attention(nn.Module):
    """W_o softmax(scale Q K^T + mask) V with Q, K, V linear in the stream: a branch.

    dim, heads      width of the stream, number of heads
    causal          whether a token sees only itself and what stands before it
    kv_heads        heads of keys and values, each shared by heads / kv_heads queries (grouped; 1: multi-query); head_dim, the width of one
    cross           keys and values come of `context`, (batch, keys, context_dim)
    bias, out_bias  on query, key and value; on the output (None: as bias)
    rotary          a `Rotary`, its options ({"theta": ..., "partial": ..., "scaling": ...}), True, or None
    qk_norm         "head": a norm over each head of queries and keys, before the rotary turn; "all": one over all heads; norm makes it
    window          a token sees those less than this away
    scale           factor on the scores, 1 / sqrt(head_dim) by default; softcap: c tanh(scores / c)
    dropout         of the attention weights
    value_residual  "first": gives its value, of shape (batch, kv_heads, keys, head_dim), to those of later layers; "later": its value is
                    l_1 V_first + l_2 V, with l_1 = l_2 = 1/2 at the start, learned (Zhou et al., ResFormer, 2024, arXiv 2410.17897)
    sinks           one learned score a head (`sink`, 0 at the start) that takes part in every softmax and has no value: a head may look at nothing
                    (gpt-oss, 2025, arXiv 2508.10925)
    score_residual  adds the scores of the attention before (He et al., RealFormer, 2020, arXiv 2012.11747)

    Runs on scaled_dot_product_attention; with softcap, sinks or score_residual it is written out. Raises UsageError when built where heads do not
    divide, and ShapeMismatch at a call with a mask of another shape.
    """

    per_sample: ClassVar[Mapping[str, int]] = {"context": 3, "context_mask": 2, "mask": 4, "key_mask": 2, "positions": 2, "first_value": 4,
                                               "scores": 4}

    def __init__(self, dim: int, heads: int, causal: bool = False, *, kv_heads: int | None = None, head_dim: int | None = None, cross: bool = False,
                 context_dim: int | None = None, bias: bool = True, out_bias: bool | None = None,
                 rotary: Rotary | Mapping[str, Any] | bool | None = None, qk_norm: str | None = None,
                 norm: Callable[[int], nn.Module] = nn.RMSNorm, window: int | None = None, scale: float | None = None, softcap: float | None = None,
                 dropout: float = 0.0, value_residual: str | None = None, score_residual: bool = False, sinks: bool = False) -> None:
        super().__init__()
        self.heads, self.kv_heads = heads, heads if kv_heads is None else kv_heads
        if self.heads % self.kv_heads or (head_dim is None and dim % heads):
            raise UsageError(f"an attention of width {dim} with {heads} heads and {self.kv_heads} of keys; wanted heads that divide the width, or "
                             "head_dim=, and kv_heads that divide the heads")
        if value_residual not in (None, "first", "later") or qk_norm not in (None, "head", "all") or (cross and causal):
            raise UsageError(f"an attention with value_residual={value_residual!r}, qk_norm={qk_norm!r}, cross={cross}, causal={causal}; "
                             "wanted first or later, head or all, and no causal cross-attention")
        self.head_dim = dim // heads if head_dim is None else head_dim
        self.causal, self.cross, self.window, self.softcap = causal, cross, window, softcap
        self.scale = 1 / math.sqrt(self.head_dim) if scale is None else scale
        self.dropout, self.value_residual, self.score_residual = dropout, value_residual, score_residual
        self.role = "cross_attention" if cross else "self_attention"
        wide, narrow, other = heads * self.head_dim, self.kv_heads * self.head_dim, context_dim or dim
        self.query = nn.Linear(dim, wide, bias)
        self.key = nn.Linear(other if cross else dim, narrow, bias)
        self.value = nn.Linear(other if cross else dim, narrow, bias)
        self.output = nn.Linear(wide, dim, bias if out_bias is None else out_bias)
        self.qk_norm = qk_norm
        self.query_norm = None if qk_norm is None else norm(self.head_dim if qk_norm == "head" else wide)
        self.key_norm = None if qk_norm is None else norm(self.head_dim if qk_norm == "head" else narrow)
        self.rotary = _rotary(rotary, self.head_dim)
        self.mix = nn.Parameter(torch.tensor([0.5, 0.5])) if value_residual == "later" else None
        self.sink = nn.Parameter(torch.zeros(heads)) if sinks else None
        self.inner: nn.Module | None = None

    @property
    def takes(self) -> frozenset[str]:
        """The keyword arguments that a stack passes: masks and positions of the stream are nothing to a cross-attention."""
        own = {"context", "context_mask"} if self.cross else {"mask", "key_mask", "positions"}
        return frozenset(own | ({"first_value"} if self.value_residual == "later" else set()) | ({"scores"} if self.score_residual else set()))

    @property
    def gives(self) -> tuple[str, ...]:
        """What stands behind y in the result for later attentions."""
        return ("first_value",) * (self.value_residual == "first") + ("scores",) * self.score_residual

    def weights(self, kind: str) -> Iterable[Tensor]:
        """Its matrices by kind: query, key, value, output."""
        return [getattr(self, kind).weight] if kind in ("query", "key", "value", "output") else []

    def inner_norm(self, make: Callable[[int], nn.Module]) -> None:
        """Puts a norm before the output projection."""
        self.inner = make(self.output.in_features)

    def forward(self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, *, context: Tensor | None = None,
                context_mask: Tensor | None = None, mask: Tensor | None = None, key_mask: Tensor | None = None, positions: Tensor | None = None,
                first_value: Tensor | None = None, scores: Tensor | None = None) -> Any:
        """y of the shape of query, (batch, queries, dim), and behind it what `gives` names.

        key, value      where they are read apart from the query; context, (batch, keys, context_dim), for a cross-attention
        mask            (queries, keys) or (batch, heads, queries, keys), bool (True takes part) or added to the scores
        key_mask, context_mask      (batch, keys), bool, True for a real token
        positions       (tokens) or (batch, tokens), for the rotary turn
        """
        key, value, key_mask = self._sources(query, key, value, context, context_mask, key_mask)
        q, k, v = self._heads(self.query(query), self.heads), self._heads(self.key(key), self.kv_heads), self._heads(self.value(value), self.kv_heads)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self._normed(q, self.query_norm), self._normed(k, self.key_norm)
        if self.rotary is not None:
            table = self.rotary.table(torch.arange(k.shape[-2], device=q.device) if positions is None else positions)
            q = self.rotary(q, table=tuple(t[..., -q.shape[-2]:, :] for t in table))        # the last query stands at the last key
            k = self.rotary(k, table=table)
        v_own = v
        if self.mix is not None:
            if first_value is None:
                raise ShapeMismatch('an attention with value_residual="later" got no first_value; put one with value_residual="first" before it')
            v = self.mix[0] * first_value + self.mix[1] * v
        y, seen = self._attend(q, k, v, checked(mask, key_mask), scores)
        y = y.transpose(1, 2).flatten(-2)
        y = self.output(y if self.inner is None else self.inner(y))
        more = (v_own,) * (self.value_residual == "first") + (seen,) * self.score_residual
        return (y, *more) if more else y

    def _sources(self, query: Tensor, key: Tensor | None, value: Tensor | None, context: Tensor | None, context_mask: Tensor | None,
                 key_mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """What keys and values are made of, and the mask of those tokens."""
        if self.cross:
            context = key if context is None else context
            if context is None:
                raise ShapeMismatch("a cross-attention got no context; give context=, (batch, keys, width)")
            return context, context, context_mask if key_mask is None else key_mask
        if context is not None or context_mask is not None:
            raise ShapeMismatch("an attention that is not built with cross=True got a context; build it with cross=True")
        key = query if key is None else key
        return key, key if value is None else value, key_mask

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        return x.unflatten(-1, (heads, self.head_dim)).transpose(-3, -2)

    def _normed(self, x: Tensor, norm: nn.Module) -> Tensor:
        if self.qk_norm == "head":
            return norm(x)
        return self._heads(norm(x.transpose(-3, -2).flatten(-2)), x.shape[-3])

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, masks: list[Tensor | None], scores: Tensor | None) -> tuple[Tensor, Tensor]:
        queries, keys = q.shape[-2], k.shape[-2]
        dropout = self.dropout if self.training else 0.0
        written = self.softcap is not None or self.score_residual or self.sink is not None
        plain = self.causal and not written and self.window is None and queries == keys and all(m is None for m in masks)
        mask = None if plain else joined([*masks, band(queries, keys, self.causal, self.window, q.device)])
        if not written:
            mask = mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype)
            return F.scaled_dot_product_attention(q, k, v, mask, dropout, plain, scale=self.scale, enable_gqa=self.heads != self.kv_heads), q
        groups = self.heads // self.kv_heads
        k, v = (t if groups == 1 else t.repeat_interleave(groups, -3) for t in (k, v))
        return attend(q, k, v, scale=self.scale, mask=mask, softcap=self.softcap, dropout=dropout, earlier=scores, sinks=self.sink)

    def extra_repr(self) -> str:
        """Heads and what differs from a plain attention."""
        told = f"{self.heads} heads" + (f", {self.kv_heads} of keys" if self.kv_heads != self.heads else "")
        return told + "".join(f", {name}" for name in ("causal", "cross", "score_residual") if getattr(self, name)) + "".join(
            f", {name}={getattr(self, name)}" for name in ("window", "softcap", "value_residual") if getattr(self, name) is not None)


def _rotary(given: Rotary | Mapping[str, Any] | bool | None, head_dim: int) -> Rotary | None:
    if given is None or given is False or isinstance(given, Rotary):
        return given or None
    return Rotary(head_dim, **({} if given is True else given))
