from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{}, {"start": 0.0}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, start: float = 1.0) -> Tensor:
    for k, f in enumerate(branches):
        x = x + layer_norm(f(x), p[k])
    return x
