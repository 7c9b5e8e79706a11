"""Norms in the spellings people write: modules of torch, by hand, and without parameters."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class HandRMSNorm(nn.Module):
    """w * x * rsqrt(mean(x^2) + eps), computed in float32."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class DividingRMSNorm(nn.Module):
    """x / sqrt(mean(x * x) + eps) * (1 + w)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)


class HandLayerNorm(nn.Module):
    """(x - mean) / sqrt(var + eps) * w + b."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.weight + self.bias


class BareLayerNorm(nn.Module):
    """Functional layer_norm without weights."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (self.dim,))


TOKEN_NORMS: dict[str, tuple[type[nn.Module], str]] = {
    "layer_norm": (nn.LayerNorm, "LayerNorm"),
    "rms_norm": (nn.RMSNorm, "RMSNorm"),
    "hand_rms": (HandRMSNorm, "RMSNorm"),
    "dividing_rms": (DividingRMSNorm, "RMSNorm"),
    "hand_layer": (HandLayerNorm, "LayerNorm"),
    "bare_layer": (BareLayerNorm, "LayerNorm"),
}
IMAGE_NORMS = {"batch": "BatchNorm", "group": "GroupNorm"}


def token_norm(name: str, dim: int) -> nn.Module:
    """A norm over the last axis."""
    make: Any = TOKEN_NORMS[name][0]
    norm: nn.Module = make(dim)
    return norm


def token_norm_class(name: str) -> str:
    """The class that `Site.norm` shows."""
    return TOKEN_NORMS[name][1]


def image_norm(name: str, channels: int) -> nn.Module:
    """A norm over channels of an image."""
    return nn.BatchNorm2d(channels) if name == "batch" else nn.GroupNorm(2, channels)
