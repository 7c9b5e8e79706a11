"""Small networks whose joins can be left out or measured by hand: the references of the tests beside them."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5
        scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))


class Ffn(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    """placement: "pre", "post" or "parallel". left_out: numbers of the block's joins that are not made. cut: branches are detached."""

    def __init__(self, dim: int, placement: str) -> None:
        super().__init__()
        self.placement = placement
        self.attn, self.ffn = Attention(dim), Ffn(dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.left_out: set[int] = set()
        self.cut = False
        self.kept: list[tuple[Tensor, Tensor, Tensor]] = []     # before, branch, after of each join, where `measure` is on
        self.measure = False

    def join(self, number: int, x: Tensor, y: Tensor) -> Tensor:
        if number in self.left_out:
            return x
        out = x + (y.detach() if self.cut else y)
        if self.measure:
            self.kept.append((x, y, out))
        return out

    def forward(self, x: Tensor) -> Tensor:
        if self.placement == "pre":
            x = self.join(0, x, self.attn(self.norm1(x)))
            return self.join(1, x, self.ffn(self.norm2(x)))
        if self.placement == "post":
            x = self.norm1(self.join(0, x, self.attn(x)))
            return self.norm2(self.join(1, x, self.ffn(x)))
        return self.join(0, x, self.attn(self.norm1(x)) + self.ffn(self.norm2(x)))


class Net(nn.Module):
    def __init__(self, placement: str, layers: int = 3, dim: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, dim)
        self.blocks = nn.ModuleList([Block(dim, placement) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 32)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


PLACEMENTS = ("pre", "post", "parallel")


def net(placement: str, **options: int) -> tuple[Net, Tensor]:
    """A network with norms that do something, and token numbers for it."""
    torch.manual_seed(0)
    model = Net(placement, **options).eval()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.uniform_(0.5, 1.5)
                module.bias.uniform_(-0.5, 0.5)
    return model, torch.randint(0, 32, (2, 7))


def loss(logits: Tensor) -> Tensor:
    """A loss with a gradient in every direction."""
    weights = torch.linspace(-1, 1, logits.shape[-1], dtype=logits.dtype)
    return (logits.logsumexp(-1) - (logits * weights).sum(-1)).mean()
