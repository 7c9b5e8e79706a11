import math

import torch
from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm, rms_norm

ROLES = ("self_attention", "ffn") * 3
CASES: list[Case] = [{}, {"roles": ROLES}, {"dynamic": False, "depth": 5, "per_block": 1}, {"prepost": True, "roles": ROLES},
                     {"prepost": True, "dynamic": False}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, dynamic: bool = True, prepost: bool = False) -> Tensor:
    states = [layer_norm(x, p[0], "input_norm") if prepost else x]
    d = len(x)

    def sums(q: dict[str, Tensor], name: str, newest: Tensor) -> list[Tensor]:
        ways, count = q[f"{name}.static"].shape
        weights = [[q[f"{name}.static"][c, j] for j in range(count)] for c in range(ways)]
        if dynamic:
            u = rms_norm(newest)
            hidden = [gelu(sum(row[i] * u[i] for i in range(d))) for row in q[f"{name}.w1"]]
            for c in range(ways):
                for j in range(count):
                    row = q[f"{name}.w2"][c * count + j]
                    weights[c][j] = weights[c][j] + sum(row[m] * hidden[m] for m in range(len(hidden)))
        found = [sum(weights[c][j] * states[j] for j in range(count)) for c in range(ways)]
        return [newest + layer_norm(v, q, f"{name}.norm.{c}") for c, v in enumerate(found)] if prepost else found

    for k, f in enumerate(branches):
        residual, given = x, [x]
        if k % config.per_block == 0 and k > 0:
            *given, residual = sums(p[k], "reader", x)
        x = residual + f(*[layer_norm(v, p[k], f"norm.{w}") for w, v in enumerate(given)])
        if (k + 1) % config.per_block == 0 or k == config.depth - 1:
            states.append(layer_norm(x, p[k], "kept_norm") if prepost else x)
    return sums(p[-1], "leaver", x)[0]


def gelu(v: Tensor) -> Tensor:
    return v * (1 + torch.erf(v / math.sqrt(2))) / 2
