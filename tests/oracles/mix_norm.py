from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{"depth": 8}, {"share": 0.7}, {"depth": 6, "share": 0.5, "per_block": 1}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, share: float = 0.25) -> Tensor:
    below = int(share * config.depth / config.per_block)
    for k, f in enumerate(branches):
        if k < below * config.per_block:
            x = layer_norm(x + f(x), p[k])
        else:
            x = x + f(layer_norm(x, p[k]))
    return x
