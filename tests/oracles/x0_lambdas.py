from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{}, {"start": "decaying", "input_norm": True}, {"per_block": 3}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, start: str = "plain", input_norm: bool = False) -> Tensor:
    if input_norm:
        x = layer_norm(x, p[0], "input_norm")
    first = x
    for k, f in enumerate(branches):
        if k % config.per_block == 0:
            x = p[k]["residual"][0] * x + p[k]["input"][0] * first
        x = x + f(layer_norm(x, p[k]))
    return x
