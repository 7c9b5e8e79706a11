from torch import Tensor

from . import Branches, Case, Config, Parameters

CASES: list[Case] = [{}, {"stack": "decoder", "per_block": 3}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, stack: str = "encoder") -> Tensor:
    for f in branches:
        x = x + f(x)
    return x
