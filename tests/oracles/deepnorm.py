from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{}, {"stack": "encoder", "decoder_blocks": 5}, {"stack": "decoder", "per_block": 3}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, stack: str = "alone", decoder_blocks: int = 0) -> Tensor:
    blocks = config.depth / config.per_block
    if stack == "alone":
        alpha = (2 * blocks) ** (1 / 4)
    elif stack == "encoder":
        alpha = 0.81 * (blocks ** 4 * decoder_blocks) ** (1 / 16)
    else:
        alpha = (3 * blocks) ** (1 / 4)
    for k, f in enumerate(branches):
        x = layer_norm(alpha * x + f(x), p[k])
    return x
