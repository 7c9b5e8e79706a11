from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{}, {"stack": "encoder", "decoder_blocks": 4}, {"stack": "decoder", "per_block": 3}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, stack: str = "alone", decoder_blocks: int = 0) -> Tensor:
    for k, f in enumerate(branches):        # the inner norm is a part of f
        x = x + f(layer_norm(x, p[k]))
    return x
