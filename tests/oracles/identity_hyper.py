import torch
from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm, rms_norm, sigmoid

CASES: list[Case] = [{}, {"leave": "mean"}, {"lanes": 2, "depth": 5}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, lanes: int = 4, leave: str = "gated") -> Tensor:
    n = lanes
    stream = [x for _ in range(n)]
    for k, f in enumerate(branches):
        z = dots(p[k]["phi"], rms_norm(torch.cat(stream)))
        pre = [sigmoid(p[k]["alpha"][0] * z[i] + p[k]["bias"][i]) + 1e-6 for i in range(n)]
        post = [2 * sigmoid(p[k]["alpha"][1] * z[n + i] + p[k]["bias"][n + i]) + 1e-6 for i in range(n)]
        y = f(layer_norm(sum(pre[i] * stream[i] for i in range(n)), p[k]))
        stream = [stream[j] + post[j] * y for j in range(n)]
    if leave == "mean":
        return sum(stream) / n
    z = dots(p[-1]["leave_phi"], rms_norm(torch.cat(stream)))
    return sum((sigmoid(p[-1]["leave_alpha"][0] * z[i] + p[-1]["leave_bias"][i]) + 1e-6) * stream[i] for i in range(n))


def dots(rows: Tensor, v: Tensor) -> list[Tensor]:
    return [sum(row[c] * v[c] for c in range(len(v))) for row in rows]
