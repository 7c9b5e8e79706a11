from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{}, {"period": 50}, {"period": 1000, "step": 20}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, period: int = 4000, step: int = 0) -> Tensor:
    for k, f in enumerate(branches):
        a = min(1.0, int(p[k]["counter.step"]) / period)
        x = layer_norm(x + a * f(x), p[k])
    return x
