from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{}, {"alpha": 3.0}, {"per_block": 3}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, alpha: float = 0.0) -> Tensor:
    for k, f in enumerate(branches):
        a = 1 if k < config.per_block else alpha or config.depth
        x = a * x + f(layer_norm(x, p[k]))
        if k > 0:
            x = layer_norm(x, p[k], "post_norm")
    return x
