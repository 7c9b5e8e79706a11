import torch
from torch import Tensor

from . import Branches, Case, Config, Parameters

CASES: list[Case] = [{}, {"start": 0.2}]


def unit(v: Tensor) -> Tensor:
    return v / torch.sqrt(sum(v[i] ** 2 for i in range(len(v))))


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, start: float = 0.05) -> Tensor:
    h = unit(x)
    for k, f in enumerate(branches):
        to = unit(f(h))
        alpha = p[k]["alpha"] * (start / len(x) ** -0.5)
        h = unit(torch.stack([h[i] + abs(alpha[i]) * (to[i] - h[i]) for i in range(len(x))]))
    return h
