"""post_norm: the sum of stream and branch is normed.

    read(h) = h          write(h, y) = N(h + y)

Parameters: one norm a sublayer; no final norm. Cost a token: reads 3 dim, writes 2 dim. Start: post_norm itself. The skip path alone keeps
2^(-S/2) of the input over S sublayers, and deep stacks want a warm-up.
Source: Vaswani et al., Attention Is All You Need, 2017, arXiv 1706.03762.
"""

from typing import Any

from torch import Tensor

from skipway.schemes._base import Scheme, Traffic


class PostNorm(Scheme):
    """N(h + F(h))."""

    placement = "post"
    at_start = "post_norm"
    traffic = Traffic(3, 2)

    def build(self) -> None:
        self.norm = self.make_norm(self.dim)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return stream, None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return self.norm(stream + y)
