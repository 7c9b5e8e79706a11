import torch
from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm, rms_norm, sigmoid

CASES: list[Case] = [{}, {"convention": "transposed", "iterations": 3, "mixer": 1.0}, {"lanes": 3, "leave": "gated", "start": "even", "alpha": 1.0},
                     {"convention": "transposed", "leave": "gated", "iterations": 4, "mixer": 1.0, "floor": 0.01, "alpha": 1.0}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, lanes: int = 4, iterations: int = 20, convention: str = "paper",
          leave: str = "mean", start: str = "", alpha: float = 0.0, mixer: float = 0.0, floor: float = 0.0) -> Tensor:
    n = lanes
    stream = [x for _ in range(n)]
    for k, f in enumerate(branches):
        z = dots(p[k]["phi"], rms_norm(torch.cat(stream)))
        scale, bias = p[k]["alpha"], p[k]["bias"]
        pre = [sigmoid(scale[0] * z[i] + bias[i]) + floor for i in range(n)]
        post = [2 * sigmoid(scale[1] * z[n + i] + bias[n + i]) for i in range(n)]
        flat = [scale[2] * z[2 * n + m] + bias[2 * n + m] for m in range(n * n)]
        # to lane j, from lane i
        logits = [[flat[i * n + j] if convention == "transposed" else flat[j * n + i] for i in range(n)] for j in range(n)]
        mix = sinkhorn(logits, iterations, floor)
        y = f(layer_norm(sum(pre[i] * stream[i] for i in range(n)), p[k]))
        stream = [sum(mix[j][i] * stream[i] for i in range(n)) + post[j] * y for j in range(n)]
    if leave == "mean":
        return sum(stream) / n
    z = dots(p[-1]["leave_phi"], rms_norm(torch.cat(stream)))
    return sum((sigmoid(p[-1]["leave_alpha"][0] * z[i] + p[-1]["leave_bias"][i]) + floor) * stream[i] for i in range(n))


def sinkhorn(logits: list[list[Tensor]], iterations: int, floor: float) -> list[list[Tensor]]:
    n = len(logits)
    m = [[torch.exp(v) for v in row] for row in logits]
    for turn in range(iterations):
        columns = [sum(m[j][i] for j in range(n)) + (floor if turn else 0) for i in range(n)]
        m = [[m[j][i] / columns[i] + (0 if turn else floor) for i in range(n)] for j in range(n)]
        rows = [sum(m[j]) + floor for j in range(n)]
        m = [[m[j][i] / rows[j] for i in range(n)] for j in range(n)]
    return m


def dots(rows: Tensor, v: Tensor) -> list[Tensor]:
    return [sum(row[c] * v[c] for c in range(len(v))) for row in rows]
