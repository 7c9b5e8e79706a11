import torch
from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm, rms_norm

ROLES = ("self_attention", "ffn") * 3
CASES: list[Case] = [{}, {"every": 2, "normed": True, "scale": 0.3, "depth": 7}, {"every": 1, "split": True, "roles": ROLES}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, every: int = 0, normed: bool = False, scale: float = 1.0,
          split: bool = False) -> Tensor:
    blocks = -(-config.depth // config.per_block)
    size = (every or -(-blocks // 8)) * config.per_block        # sublayers a part
    finished, current = [x], None

    def attend(query: Tensor) -> Tensor:
        sources = finished if current is None else [*finished, current]
        keys = [rms_norm(v) for v in sources]
        powers = [torch.exp(scale * sum(query[c] * u[c] for c in range(len(x)))) for u in keys]
        return sum(a / sum(powers) * (u if normed else v) for a, u, v in zip(powers, keys, sources))

    for k, f in enumerate(branches):
        ways = 3 if split and config.role(k) == "self_attention" else 1
        y = f(*[layer_norm(attend(p[k]["query"][w]) if k else x, p[k], f"norm.{w}") for w in range(ways)])
        current = y if current is None else current + y
        if (k + 1) % size == 0:
            finished, current = [*finished, current], None
    return attend(p[-1]["leave_query"])
