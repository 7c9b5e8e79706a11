from torch import Tensor

from . import Branches, Case, Config, Parameters

HALF = 0.5 ** 0.5
CASES: list[Case] = [{}, {"shortcut_scale": 0.9, "branch_scale": 0.4}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, shortcut_scale: float = HALF, branch_scale: float = HALF) -> Tensor:
    for f in branches:
        x = shortcut_scale * x + branch_scale * f(x)
    return x
