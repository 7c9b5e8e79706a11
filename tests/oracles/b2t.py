from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{}, {"per_block": 3}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config) -> Tensor:
    for start in range(0, config.depth, config.per_block):
        bottom = x
        for j in range(config.per_block):
            k = start + j
            total = x + branches[k](x)
            if j == config.per_block - 1:
                total = total + bottom
            x = layer_norm(total, p[k])
    return x
