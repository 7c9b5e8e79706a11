from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{}, {"merge": "sum", "depth": 5}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, merge: str = "mean") -> Tensor:
    one, two = x, x
    for k, f in enumerate(branches):                        # F on even sublayers, G on odd ones, as RevNet writes them
        if k % 2 == 0:
            one = one + f(layer_norm(two, p[k]))
        else:
            two = two + f(layer_norm(one, p[k]))
    return one + two if merge == "sum" else (one + two) / 2
