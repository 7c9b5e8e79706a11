from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

CASES: list[Case] = [{}, {"dilation": 2}, {"depth": 8, "dilation": 2, "period": 3}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, dilation: int = 1, period: int = 1) -> Tensor:
    states = [x]
    for k, f in enumerate(branches):
        x = x + f(layer_norm(x, p[k]))
        if (k + 1) % config.per_block == 0:
            i = (k + 1) // config.per_block
            states.append(x)
            if i % period == 0:
                taken = [j for j in range(i + 1) if j % dilation == i % dilation]
                x = sum(p[k]["alpha"][a] * states[j] for a, j in enumerate(taken))
    return x
