"""Every scheme written again as plain loops over one token, straight from its equation, sharing no code with the scheme.

One file a scheme: `token(x, branches, p, config, **options) -> y`. x and y are vectors of the width; branches are functions of vectors, one a
sublayer (they take as many vectors as the scheme reads); p[k] maps the names of the k-th sublayer's own parameters and buffers to tensors; config
is `Config`. CASES lists the options (and what of Config differs) under which the contract compares. Everything is float64.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Branches = Sequence[Callable[..., Tensor]]
Parameters = Sequence[Mapping[str, Tensor]]
Case = Mapping[str, Any]


@dataclass(frozen=True)
class Config:
    """How the stack is built."""

    depth: int = 6
    per_block: int = 2
    roles: tuple[str, ...] = ()

    def role(self, k: int) -> str:
        return self.roles[k] if self.roles else "other"


def layer_norm(v: Tensor, p: Mapping[str, Tensor], name: str = "norm", eps: float = 1e-5) -> Tensor:
    """nn.LayerNorm over one vector, by its definition."""
    n = len(v)
    mean = sum(v[i] for i in range(n)) / n
    variance = sum((v[i] - mean) ** 2 for i in range(n)) / n
    return torch.stack([(v[i] - mean) / torch.sqrt(variance + eps) * p[f"{name}.weight"][i] + p[f"{name}.bias"][i] for i in range(n)])


def rms_norm(v: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """Root-mean-square norm over one vector, with a gain where there is one."""
    n = len(v)
    square = sum(v[i] ** 2 for i in range(n)) / n
    scale = 1 / torch.sqrt(square + eps)
    return torch.stack([v[i] * scale * (1 if weight is None else weight[i]) for i in range(n)])


def sigmoid(z: Tensor) -> Tensor:
    return 1 / (1 + math.e ** (-z))
