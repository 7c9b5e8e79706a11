from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{}, {"std": 0.006}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, std: float = 0.02) -> Tensor:
    for k, f in enumerate(branches):
        x = x + f(layer_norm(x, p[k]))
    return x
