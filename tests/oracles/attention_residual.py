import torch
from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm, rms_norm

ROLES = ("self_attention", "ffn") * 3
CASES: list[Case] = [{}, {"normed": True, "scale": 0.3}, {"split": True, "roles": ROLES}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, normed: bool = False, scale: float = 1.0, split: bool = False) -> Tensor:
    values = [x]

    def attend(query: Tensor) -> Tensor:
        keys = [rms_norm(v) for v in values]
        powers = [torch.exp(scale * sum(query[c] * u[c] for c in range(len(x)))) for u in keys]
        return sum(a / sum(powers) * (u if normed else v) for a, u, v in zip(powers, keys, values))

    for k, f in enumerate(branches):
        ways = 3 if split and config.role(k) == "self_attention" else 1
        given = [layer_norm(attend(p[k]["query"][w]) if k else x, p[k], f"norm.{w}") for w in range(ways)]
        values.append(f(*given))
    return attend(p[-1]["leave_query"])
