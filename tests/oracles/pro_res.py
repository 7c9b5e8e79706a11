from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{}, {"period": 100}, {"period": 50, "step": 20, "per_block": 3}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, period: int = 1000, step: int = 0) -> Tensor:
    for k, f in enumerate(branches):
        block = k // config.per_block + 1
        a = min(int(p[k]["counter.step"]) / (period * block), 1.0)
        x = x + a * f(layer_norm(x, p[k]))
    return x
