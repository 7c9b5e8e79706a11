"""Branches over tokens. Each ends in a linear map `out`, so that a join may be fused into its matrix product.

Legend: b batch, t token, d width, h heads. `forward(x, side)` = out(core(x, side)).
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def gelu_by_hand(x: Tensor) -> Tensor:
    """The tanh form of GELU; it holds an add that is no join."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x.pow(3))))


def rotate(x: Tensor) -> Tensor:
    """Rotary positions on (b, h, t, d / h); it holds an add that is no join."""
    t, d = x.shape[-2:]
    angle = torch.arange(t, device=x.device)[:, None] / 100.0 ** (torch.arange(0, d, 2, device=x.device) / d)
    cos, sin = torch.cat([angle.cos()] * 2, -1).to(x.dtype), torch.cat([angle.sin()] * 2, -1).to(x.dtype)
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


class Side(NamedTuple):
    """What a branch may read besides the stream."""

    memory: Tensor | None               # another sequence, for cross-attention
    mask: Tensor | None                 # added to the scores of self-attention, (t, t)


class Lora(nn.Module):
    """W x + up(down(x)): a low-rank pair beside a linear map."""

    def __init__(self, width: int, dim: int) -> None:
        super().__init__()
        self.base, self.down, self.up = nn.Linear(width, dim), nn.Linear(width, 2, bias=False), nn.Linear(2, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + self.up(self.down(x)) * 0.5
        return out


class Branch(nn.Module):
    """Base: what `core` computes goes through `out`."""

    kind = "other"
    inner = 0                           # joins of a residual stream that lives inside
    out: nn.Module

    def core(self, x: Tensor, side: Side | None) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor, side: Side | None = None) -> Tensor:
        result: Tensor = self.out(self.core(x, side))
        return result

    def silence(self) -> None:
        """Make the branch compute zero."""
        for part in self.out.modules():
            if isinstance(part, nn.Linear):
                nn.init.zeros_(part.weight)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)


class Attention(Branch):
    """Self-attention, or cross-attention where `kind` says so; keys and values then come from the memory."""

    def __init__(self, dim: int, kind: str, variant: str) -> None:
        super().__init__()
        self.kind, self.variant, self.heads = kind, variant, 2
        bias = variant not in ("softmax", "no_bias")
        self.q, self.k, self.v = (nn.Linear(dim, dim, bias=bias) for _ in range(3))
        self.out = Lora(dim, dim) if variant == "lora" else nn.Linear(dim, dim, bias=bias)

    def split(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        return x.view(b, t, self.heads, d // self.heads).transpose(1, 2)

    def core(self, x: Tensor, side: Side | None) -> Tensor:
        source, mask = sources(self.kind, x, side)
        q, k, v = self.split(self.q(x)), self.split(self.k(source)), self.split(self.v(source))
        if self.variant == "rotary":
            q, k = rotate(q), rotate(k)
        if self.variant in ("softmax", "masked", "einsum"):
            mixed = self.by_hand(q, k, v, mask)
        else:
            causal = self.variant == "causal" and source is x and mask is None
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        return mixed.transpose(1, 2).reshape(x.shape)

    def by_hand(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        if self.variant == "einsum":
            weights = torch.einsum("bhid,bhjd->bhij", q, k).mul(q.shape[-1] ** -0.5).softmax(-1)
            return torch.einsum("bhij,bhjd->bhid", weights, v)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if self.variant == "masked" and self.kind == "self_attention":
            t = scores.shape[-1]
            scores = scores + torch.full((t, t), -1e4, device=scores.device, dtype=scores.dtype).triu(1)
        if mask is not None:
            scores = scores + mask
        return F.softmax(scores, dim=-1) @ v


def sources(kind: str, x: Tensor, side: Side | None) -> tuple[Tensor, Tensor | None]:
    """Where keys and values come from, and the mask."""
    if kind == "cross_attention" and side is not None and side.memory is not None:
        return side.memory, None
    return x, None if side is None or kind == "cross_attention" else side.mask


class FusedQKV(Branch):
    """One projection for queries, keys and values, as GPT-2 has it."""

    kind = "self_attention"

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), 2

    def core(self, x: Tensor, side: Side | None) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)


class TorchAttention(Branch):
    """nn.MultiheadAttention; its output projection is inside, so `out` is the whole module."""

    def __init__(self, dim: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.out = nn.MultiheadAttention(dim, 2, batch_first=True)

    def forward(self, x: Tensor, side: Side | None = None) -> Tensor:
        source, mask = sources(self.kind, x, side)
        result: Tensor = self.out(x, source, source, attn_mask=mask, need_weights=False)[0]
        return result


class FeedForward(Branch):
    """Linear, activation, Linear; gated, by-hand GELU and low-rank forms; dropout and casts that change nothing."""

    kind = "ffn"

    def __init__(self, dim: int, variant: str) -> None:
        super().__init__()
        self.variant, width = variant, 2 * dim
        self.up, self.drop = nn.Linear(dim, width), nn.Dropout(0.1)
        self.gate = nn.Linear(dim, width) if variant == "gated" else None
        self.out = Lora(width, dim) if variant == "lora" else nn.Linear(width, dim, bias=variant != "no_bias")

    def core(self, x: Tensor, side: Side | None) -> Tensor:
        if self.gate is not None:
            return F.silu(self.gate(x)) * self.up(x)
        hidden: Tensor = self.up(x)
        hidden = gelu_by_hand(hidden) if self.variant == "gelu_by_hand" else torch.relu(hidden)
        dropped: Tensor = self.drop(hidden)
        return dropped.to(x.dtype)


class Experts(Branch):
    """Routed experts, dense or top two, with or without a shared one; sums of experts are no joins."""

    kind = "moe"

    def __init__(self, dim: int, variant: str) -> None:
        super().__init__()
        self.variant, count = variant, 3
        self.router = nn.Linear(dim, count, bias=False)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim)) for _ in range(count)])
        self.shared = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim)) if variant == "shared" else None

    def forward(self, x: Tensor, side: Side | None = None) -> Tensor:
        weights = self.router(x).softmax(-1)
        if self.variant == "top2":
            kept, at = weights.topk(2, dim=-1)
            weights = torch.zeros_like(weights).scatter(-1, at, kept / kept.sum(-1, keepdim=True))
        result = torch.stack([weights[..., i:i + 1] * e(x) for i, e in enumerate(self.experts)]).sum(0)
        if self.shared is not None:
            result = result + self.shared(x)
        return result

    def silence(self) -> None:
        for part in [*self.experts, *([self.shared] if self.shared is not None else [])]:
            last = part.get_submodule("2")
            assert isinstance(last, nn.Linear)
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)


class Inner(Branch):
    """down(z + g(z)) or down(z + g(norm(z))) with z = up(x): a small residual stream of another width inside the branch."""

    inner = 1

    def __init__(self, dim: int, kind: str, normed: bool) -> None:
        super().__init__()
        self.kind, width = kind, dim + 4
        self.up, self.norm = nn.Linear(dim, width), nn.LayerNorm(width) if normed else nn.Identity()
        self.body: Branch = Attention(width, kind, "plain") if kind == "self_attention" else FeedForward(width, "plain")
        self.out = nn.Linear(width, dim)

    def core(self, x: Tensor, side: Side | None) -> Tensor:
        z: Tensor = self.up(x)
        return z + self.body(self.norm(z))


VARIANTS: dict[str, tuple[str, ...]] = {
    "ffn": ("plain", "gelu_by_hand", "gated", "no_bias", "lora", "inner", "inner_normed"),
    "self_attention": ("plain", "softmax", "masked", "einsum", "causal", "rotary", "no_bias", "lora", "fused_qkv", "torch", "inner", "inner_normed"),
    "cross_attention": ("plain", "softmax", "einsum", "lora", "torch"),
    "moe": ("dense", "top2", "shared"),
}
FUSABLE = {("ffn", "no_bias"), ("self_attention", "softmax"), ("self_attention", "no_bias"), ("cross_attention", "softmax")}


def make_branch(kind: str, variant: str, dim: int) -> Branch:
    """The branch of this kind in this variant (see VARIANTS)."""
    if variant.startswith("inner"):
        return Inner(dim, kind, variant == "inner_normed")
    if variant == "torch":
        return TorchAttention(dim, kind)
    if variant == "fused_qkv":
        return FusedQKV(dim)
    if kind == "moe":
        return Experts(dim, variant)
    return FeedForward(dim, variant) if kind == "ffn" else Attention(dim, kind, variant)
