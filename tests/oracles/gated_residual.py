import torch
from torch import Tensor

from . import Branches, Case, Config, Parameters, rms_norm, sigmoid

CASES: list[Case] = [{}, {"lanes": 3, "rank": 2, "depth": 5}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, lanes: int = 4, rank: int = 0) -> Tensor:
    n, d = lanes, len(x)
    stream = [x for _ in range(n)]

    def read(q: dict[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
        lanes_normed = [rms_norm(stream[i], q[f"{name}.gain"][i]) for i in range(n)]
        u = torch.cat(lanes_normed)
        low = [v / n for v in dots(q[f"{name}.down"], u)]
        low = [v * sigmoid(v) for v in low]
        gate = [sigmoid(sum(row[r] * low[r] for r in range(len(low)))) for row in q[f"{name}.up"]]
        return torch.stack([sum(gate[i * d + c] * u[i * d + c] for i in range(n)) / n for c in range(d)]), u

    for k, f in enumerate(branches):
        given, u = read(p[k], "reader")
        y = f(given)
        inject = dots(p[k]["inject"], u)
        stream = [stream[j] + 2 * sigmoid(inject[j] / n) * y for j in range(n)]
    return read(p[-1], "leaver")[0]


def dots(rows: Tensor, v: Tensor) -> list[Tensor]:
    return [sum(row[c] * v[c] for c in range(len(v))) for row in rows]
