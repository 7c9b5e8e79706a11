from torch import Tensor

from . import Branches, Case, Config, Parameters

CASES: list[Case] = [{}, {"start": "depth"}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, start: float | str = 0.0) -> Tensor:
    for k, f in enumerate(branches):
        x = x + p[k]["scale"][0] * f(x)
    return x
