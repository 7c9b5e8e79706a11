from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{}, {"normed": True}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, normed: bool = False) -> Tensor:
    for k, f in enumerate(branches):
        x = f(layer_norm(x, p[k])) if normed else f(x)
    return x
