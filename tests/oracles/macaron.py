from torch import Tensor

from . import Branches, Case, Config, Parameters, layer_norm

ROLES = ("ffn", "self_attention", "ffn", "ffn", "self_attention", "moe")

CASES: list[Case] = [{"roles": ROLES, "per_block": 3}, {"roles": ROLES, "per_block": 3, "closing_norm": True}, {"roles": ROLES, "step": 0.25},
                     {"roles": ("conv", "ffn", "ssm"), "depth": 3, "per_block": 2, "closing_norm": True}]


def token(x: Tensor, branches: Branches, p: Parameters, config: Config, step: float = 0.5, closing_norm: bool = False) -> Tensor:
    for k, f in enumerate(branches):
        x = x + (step if config.role(k) in ("ffn", "moe") else 1.0) * f(layer_norm(x, p[k]))
        if closing_norm and ((k + 1) % config.per_block == 0 or k + 1 == config.depth):
            x = layer_norm(x, p[k], "closing")
    return x
