"""Small models for surgery."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Pre-norm, one join by operator and one in place."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mix = nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mix(self.norm1(x))
        y: Tensor = self.down(torch.relu(self.up(self.norm2(x))))
        y += x
        return y


class Small(nn.Module):
    """Three blocks between an embedding and a head."""

    def __init__(self, dim: int = 16, layers: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 11)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


@pytest.fixture
def small() -> Small:
    torch.manual_seed(0)
    return Small()


@pytest.fixture
def ids() -> Tensor:
    return torch.arange(12).view(2, 6) % 11


def gradients(model: nn.Module, *args: Any, **kwargs: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """The output, and the gradients of the model's own parameters, of a fixed weighted sum."""
    model.zero_grad()
    out = model(*args, **kwargs)
    (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)).sum().backward()
    return out.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None and "skip_" not in n}


def assert_same(a: tuple[Tensor, dict[str, Tensor]], b: tuple[Tensor, dict[str, Tensor]]) -> None:
    assert torch.equal(a[0], b[0])
    assert a[1].keys() == b[1].keys()
    for name in a[1]:
        assert torch.equal(a[1][name], b[1][name]), name
