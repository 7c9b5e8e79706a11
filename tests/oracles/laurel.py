import math

import torch
from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{"rank": 4}, {"kind": "rw"}, {"kind": "pa", "rank": 3, "depth": 5}, {"kind": "gemma3n", "rank": 2}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, kind: str = "lr", rank: int = 64) -> Tensor:
    past = [x]
    for k, f in enumerate(branches):
        given = layer_norm(x, p[k])
        y = f(given)
        if kind == "rw":
            powers = [torch.exp(p[k]["weight"][i]) for i in range(2)]
            x = 2 * powers[0] / sum(powers) * y + 2 * powers[1] / sum(powers) * x
        elif kind == "lr":
            x = y + x + low(p[k], x)
        elif kind == "pa":
            x = y + x + sum(p[k]["gamma"][j] * low(p[k], past[j]) for j in range(k + 1))
            past.append(x)
        else:
            x = (x + layer_norm(y, p[k], "out_norm") + given + layer_norm(low(p[k], given), p[k], "low_norm")) / math.sqrt(2)
    return x


def low(q: dict[str, Tensor], v: Tensor) -> Tensor:
    down = [sum(row[c] * v[c] for c in range(len(v))) for row in q["down"]]
    return torch.stack([sum(row[r] * down[r] for r in range(len(down))) for row in q["up"]])
