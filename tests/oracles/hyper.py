import torch
from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm, rms_norm

CASES: list[Case] = [{}, {"dynamic": False}, {"lanes": 3, "leave": "sum"}, {"lanes": 2, "depth": 5}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, lanes: int = 4, dynamic: bool = True, leave: str = "mean") -> Tensor:
    n = lanes
    stream = [x for _ in range(n)]
    for k, f in enumerate(branches):
        a = [p[k]["read_weight"][i] for i in range(n)]
        mixer = [[p[k]["mixer"][i, j] for j in range(n)] for i in range(n)]
        b = [p[k]["write_weight"][i] for i in range(n)]
        if dynamic:
            gates = p[k]["gates"]
            for i in range(n):
                u = rms_norm(stream[i])
                a[i] = a[i] + p[k]["read_scale"][0] * torch.tanh(sum(u[c] * gates[0, c] for c in range(len(x))))
                for j in range(n):
                    mixer[i][j] = mixer[i][j] + p[k]["read_scale"][0] * torch.tanh(sum(u[c] * gates[1 + j, c] for c in range(len(x))))
                b[i] = b[i] + p[k]["write_scale"][0] * torch.tanh(sum(u[c] * gates[n + 1, c] for c in range(len(x))))
        y = f(layer_norm(sum(a[i] * stream[i] for i in range(n)), p[k]))
        stream = [sum(mixer[i][j] * stream[i] for i in range(n)) + b[j] * y for j in range(n)]
    return sum(stream) / (n if leave == "mean" else 1)
