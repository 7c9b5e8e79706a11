"""The sublayers that the models of a study are made of: one matrix a linear map, so that a scheme finds each by its kind.

x is (batch, token, width); a scheme may give attention its query, key and value apart.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skipway._errors import StudyError


class Attention(nn.Module):
    """W_o softmax(q k / sqrt(width / heads)) v."""

    role = "self_attention"

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        if width % heads:
            raise StudyError(f"a width of {width} does not divide into {heads} heads; choose a multiple of {heads}, or other heads")
        self.heads, self.causal = heads, causal
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.inner: nn.Module | None = None

    def forward(self, x: Tensor, key: Tensor | None = None, value: Tensor | None = None) -> Tensor:
        q, k, v = self.q(x), self.k(x if key is None else key), self.v(x if value is None else value)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(-3, -2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(-3, -2).flatten(-2)
        return self.o(y if self.inner is None else self.inner(y))

    def weights(self, kind: str) -> list[Tensor]:
        """The matrices of a kind."""
        found = {"query": self.q, "key": self.k, "value": self.v, "output": self.o}.get(kind)
        return [] if found is None else [found.weight]

    def inner_norm(self, make: Callable[[int], nn.Module]) -> None:
        """Puts a norm before the output projection."""
        self.inner = make(self.o.in_features)


class FeedForward(nn.Module):
    """W_2 gelu(W_1 x)."""

    role = "ffn"

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.inner: nn.Module | None = None

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.up(x))
        return self.down(y if self.inner is None else self.inner(y))

    def weights(self, kind: str) -> list[Tensor]:
        """The matrices of a kind."""
        return {"input": [self.up.weight], "output": [self.down.weight]}.get(kind, [])

    def inner_norm(self, make: Callable[[int], nn.Module]) -> None:
        """Puts a norm before the output projection."""
        self.inner = make(self.down.in_features)


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
                                                "ffn": lambda: FeedForward(width, 4 * width), "dense": lambda: Dense(width)}
    if role not in made:
        raise StudyError(f"no block for a sublayer {role!r}; a task's sublayers are of {', '.join(made)}")
    return made[role]()


def spread(kind: str, fan_in: int, fan_out: int) -> float:
    """Standard deviation of a matrix at the start."""
    return {"lecun": 1 / math.sqrt(fan_in), "xavier": math.sqrt(2 / (fan_in + fan_out)), "he": math.sqrt(2 / fan_in), "small": 0.02}[kind]
