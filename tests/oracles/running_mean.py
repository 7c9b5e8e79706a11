from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{}, {"per_block": 3}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config) -> Tensor:
    k = 1
    for i, f in enumerate(branches):
        k += 1
        y = layer_norm(f(layer_norm(x, p[i])), p[i], "out_norm")
        x = ((k - 1) / k) ** 0.5 * x + (1 / k) ** 0.5 * y
    return x
