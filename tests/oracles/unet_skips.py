import torch
from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{"depth": 8}, {"depth": 8, "middle": 0, "start": 0.5}, {"depth": 10}, {"depth": 6, "join": "linear"},
                     {"depth": 5, "per_block": 1, "middle": 3}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, middle: int | None = None, join: str = "add", start: float = 1.0) -> Tensor:
    blocks = config.depth // config.per_block
    if middle is None:
        middle = 1 if blocks % 2 else 2
    pairs = (blocks - middle) // 2
    kept = {}
    for k, f in enumerate(branches):
        block, begins = k // config.per_block, k % config.per_block == 0
        if begins and block >= blocks - pairs:
            from_there = kept[blocks - 1 - block]
            if join == "add":
                x = x + p[k]["weight"] * from_there
            else:
                both = torch.cat([x, from_there])
                x = torch.stack([sum(p[k]["merge.weight"][i, j] * both[j] for j in range(len(both))) + p[k]["merge.bias"][i] for i in range(len(x))])
        x = x + f(layer_norm(x, p[k]))
        if (k + 1) % config.per_block == 0:
            kept[block] = x
    return x
