import torch
from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm, rms_norm

CASES: list[Case] = [{}, {"dynamic": True, "active": 0, "lanes": 2}, {"birth": "project", "lanes": 3, "depth": 5, "dynamic": True}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, lanes: int = 4, active: int | None = None, dynamic: bool = False,
          birth: str = "copy") -> Tensor:
    n, d = lanes, len(x)
    stream = [x, *([sized(product(p[0]["enter_maps"][i], x), x) for i in range(n - 1)] if birth == "project" else [x] * (n - 1))]
    z = x

    def router(q: dict[str, Tensor], v: Tensor) -> list[Tensor]:
        u = rms_norm(v, q["router_gain"])
        return [torch.tanh(sum(row[c] * u[c] / d for c in range(d))) for row in q["router"]]

    for k, f in enumerate(branches):
        a = (k // config.per_block) % n if active is None else active
        if k % config.per_block == 0:
            coefficient = [[p[k]["predict"][i, j] for j in range(n)] for i in range(n)]
            if dynamic:
                m = router(p[k], stream[a])
                for i in range(n):
                    for j in range(n):
                        coefficient[i][j] = coefficient[i][j] + sum(p[k]["predict_gate"][i, j, r] * m[r] for r in range(n))
            stream = [sum(coefficient[i][j] * stream[j] for j in range(n)) for i in range(n)]
            z = stream[a]
        z = z + f(layer_norm(z, p[k]))
        if (k + 1) % config.per_block == 0 or k == config.depth - 1:
            g = [p[k]["correct"][i] for i in range(n)]
            if dynamic:
                m = router(p[k], z)
                g = [g[i] + sum(p[k]["correct_gate"][i, r] * m[r] for r in range(n)) for i in range(n)]
            stream = [stream[i] + g[i] * (z - stream[a]) for i in range(n)]
    left = stream[1:] if birth == "copy" else [sized(product(p[-1]["leave_maps"][i], stream[i + 1]), stream[0]) for i in range(n - 1)]
    return (stream[0] + sum(left)) / n


def product(matrix: Tensor, v: Tensor) -> Tensor:
    return torch.stack([sum(row[c] * v[c] for c in range(len(v))) for row in matrix])


def sized(v: Tensor, like: Tensor) -> Tensor:
    size = torch.sqrt(torch.clamp(sum(c ** 2 for c in v) / len(v), min=1e-5))
    return v * torch.sqrt(sum(c ** 2 for c in like) / len(like)) / size
