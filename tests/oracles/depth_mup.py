from torch import Tensor

from . import Branches, Case, Config, Parameters

CASES: list[Case] = [{}, {"base_depth": 3}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, base_depth: int = 1) -> Tensor:
    for f in branches:
        x = x + (base_depth / config.depth) ** 0.5 * f(x)
    return x
