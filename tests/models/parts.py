"""What the look-alikes are built of, and how one is described. Sequences are (batch, token, channel), images (batch, channel, row, column)."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DIM = 16


@dataclass(frozen=True)
class LookAlike:
    """A correct model that a naive checker flags.

    sites: for every site of the main streams, in order, its branch kinds and placement ("self_attention+ffn pre"; "?" where a
    reader may take either); None where the number of sites is a matter of reading. options: keyword arguments of check.
    """

    model: nn.Module
    args: tuple[Any, ...]
    sites: list[str] | None = None
    options: dict[str, Any] = field(default_factory=dict)


def tokens(batch: int = 2, length: int = 6, dim: int = DIM) -> Tensor:
    return torch.randn(batch, length, dim, generator=torch.Generator().manual_seed(0))


def image(channels: int = 3, size: int = 16, batch: int = 2) -> Tensor:
    return torch.randn(batch, channels, size, size, generator=torch.Generator().manual_seed(0))


class RMSNorm(nn.Module):
    def __init__(self, dim: int = DIM) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class Attention(nn.Module):
    """Multi-head attention of x on `context`, by default on itself."""

    def __init__(self, dim: int = DIM, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y = F.scaled_dot_product_attention(self.split(self.q(q)), self.split(self.k(k)), self.split(self.v(v)))
        return self.o(y.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        context = x if context is None else context
        return self.attend(x, context, context)


class FeedForward(nn.Module):
    def __init__(self, dim: int = DIM, hidden: int = 32) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    """The plain pre-norm block."""

    def __init__(self, dim: int = DIM) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attn, self.ffn = nn.LayerNorm(dim), nn.LayerNorm(dim), Attention(dim), FeedForward(dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.ffn(self.norm2(x))


class Trunk(nn.Module):
    """stem -> blocks -> norm -> head."""

    def __init__(self, *blocks: nn.Module, dim: int = DIM, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.stem, self.blocks = nn.Linear(dim, dim), nn.Sequential(*blocks)
        self.norm, self.head = norm or nn.LayerNorm(dim), nn.Linear(dim, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.stem(x))))
