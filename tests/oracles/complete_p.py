from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{}, {"alpha": 0.5, "base_blocks": 1}, {"base_dim": 2, "per_block": 1}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, alpha: float = 1.0, base_blocks: int = 2, base_dim: int = 0) -> Tensor:
    m = config.depth / config.per_block / base_blocks
    for k, f in enumerate(branches):
        x = x + f(layer_norm(x, p[k])) / m ** alpha
    return x
