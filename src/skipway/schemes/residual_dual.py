"""residual_dual: a post-norm stream that the branches read, and a raw stream that keeps their sum (ResiDual).

    enter: a = x, d = s x          read(a, d) = a          write: a <- N(a + y), d <- d + s y          leave: a + N'(d)

s is a constant, 1 by default; the norm at the end takes it out again, and a small one keeps d from overflowing in half precision.
Parameters: one norm a sublayer, one at the end. Cost a token: reads 5 dim, writes 3 dim. A sublayer has two sites, one on each stream.
Source: Xie et al., ResiDual: Transformer with Dual Residual Connections, 2023, arXiv 2304.14802.
"""

from typing import Any

from torch import Tensor

from skipway.schemes._base import Scheme, Traffic

State = tuple[Tensor, Tensor]           # a, d


class ResidualDual(Scheme):
    """N(a + F(a)) beside d + F(a). Options: scale (s)."""

    placement = "post"
    beside = ("none",)
    traffic = Traffic(5, 3)

    def build(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.norm = self.make_norm(self.dim)
        self.dual_norm = self.make_norm(self.dim) if self.last else None

    def enter(self, x: Tensor) -> State:
        return x, x if self.scale == 1.0 else self.scale * x

    def read(self, stream: State) -> tuple[Tensor, None]:
        return stream[0], None

    def write(self, stream: State, y: Tensor, memo: Any) -> State:
        a, d = stream
        return self.norm(a + y), d + (y if self.scale == 1.0 else self.scale * y)

    def leave(self, stream: State) -> Tensor:
        a, d = stream
        return a if self.dual_norm is None else a + self.dual_norm(d)
