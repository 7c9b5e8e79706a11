from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{}, {"scale": 0.25}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, scale: float = 1.0) -> Tensor:
    a, d = x, scale * x
    for k, f in enumerate(branches):
        y = f(a)
        a, d = layer_norm(a + y, p[k]), d + scale * y
    return a + layer_norm(d, p[-1], "dual_norm")
