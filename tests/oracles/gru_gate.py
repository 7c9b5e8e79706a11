import math

import torch
from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm, sigmoid

CASES: list[Case] = [{}, {"bias": 1.0, "relu": False}]


def times(w: Tensor, v: Tensor) -> Tensor:
    return torch.stack([sum(row[j] * v[j] for j in range(len(v))) for row in w])


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, bias: float = 2.0, relu: bool = True) -> Tensor:
    n = len(x)
    for k, f in enumerate(branches):
        w, u, u_c, b = (p[k][name] for name in ("from_branch.weight", "from_stream.weight", "from_reset.weight", "bias"))
        y = f(layer_norm(x, p[k]))
        if relu:
            y = torch.stack([v if v > 0 else 0 * v for v in y])
        r = sigmoid(times(w[:n], y) + times(u[:n], x))
        z = sigmoid(times(w[n:2 * n], y) + times(u[n:], x) - b)
        c = torch.stack([1 - 2 / (math.e ** (2 * v) + 1) for v in times(w[2 * n:], y) + times(u_c, r * x)])
        x = (1 - z) * x + z * c
    return x
