import torch
from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm, rms_norm

CASES: list[Case] = [{}, {"dynamic": False}, {"fractions": 2, "depth": 5}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, fractions: int = 4, dynamic: bool = True) -> Tensor:
    m, width = fractions, len(x) // fractions
    parts = [x[i * width:(i + 1) * width] for i in range(m)]
    for k, f in enumerate(branches):
        reader = [[p[k]["reader"][i, j] for j in range(m)] for i in range(m)]
        mixer = [[p[k]["mixer"][i, j] for j in range(m)] for i in range(m)]
        b = [p[k]["write_weight"][i] for i in range(m)]
        if dynamic:
            for i in range(m):
                u = rms_norm(parts[i])
                moved = [torch.tanh(sum(u[c] * row[c] for c in range(width))) for row in p[k]["gates"]]
                for j in range(m):
                    reader[i][j] = reader[i][j] + p[k]["read_scale"][0] * moved[j]
                    mixer[i][j] = mixer[i][j] + p[k]["read_scale"][0] * moved[m + j]
                b[i] = b[i] + p[k]["write_scale"][0] * moved[2 * m]
        y = f(layer_norm(torch.cat([sum(reader[i][j] * parts[i] for i in range(m)) for j in range(m)]), p[k]))
        parts = [sum(mixer[i][j] * parts[i] for i in range(m)) + b[j] * y[j * width:(j + 1) * width] for j in range(m)]
    return torch.cat(parts)
