from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{}, {"start": 0.1, "input_norm": True}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, start: float = 1.0, input_norm: bool = False) -> Tensor:
    if input_norm:
        x = layer_norm(x, p[0], "input_norm")
    for k, f in enumerate(branches):
        x = x + layer_norm(f(layer_norm(x, p[k])), p[k], "out_norm")
    return x
