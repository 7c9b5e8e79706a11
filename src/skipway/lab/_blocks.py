"""The sublayers that the models of a study are made of, and how wide their matrices start."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from skipway._errors import StudyError
from skipway.nn import Attention, FeedForward

NORMS = {"layer_norm": nn.LayerNorm, "rms_norm": nn.RMSNorm}


class Dense(nn.Module):
    """relu(W x): a layer of a plain deep network."""

    role = "ffn"

    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(width, width)
        self.inner: nn.Module | None = None

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.map(x if self.inner is None else self.inner(x)))

    def weights(self, kind: str) -> list[Tensor]:
        """Its one matrix both reads and writes."""
        return [self.map.weight] if kind == "output" else []

    def inner_norm(self, make: Callable[[int], nn.Module]) -> None:
        """Puts a norm before the only projection."""
        self.inner = make(self.map.in_features)


def sublayer(role: str, width: int, heads: int, causal: bool) -> nn.Module:
    """One sublayer by its role. Raises StudyError for a role that there is no block for."""
    made: dict[str, Callable[[], nn.Module]] = {"self_attention": lambda: Attention(width, heads, causal),
                                                "ffn": lambda: FeedForward(width), "dense": lambda: Dense(width)}
    if role not in made:
        raise StudyError(f"no block for a sublayer {role!r}; a task's sublayers are of {', '.join(made)}")
    return made[role]()


def spread(kind: str, fan_in: int, fan_out: int) -> float:
    """Standard deviation of a matrix at the start."""
    return {"lecun": 1 / math.sqrt(fan_in), "xavier": math.sqrt(2 / (fan_in + fan_out)), "he": math.sqrt(2 / fan_in), "small": 0.02}[kind]
