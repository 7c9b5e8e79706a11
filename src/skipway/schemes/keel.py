"""keel: post-norm with a norm before the branch and a shortcut multiplied by alpha.

    read(h) = N1(h)          write(h, y) = N2(alpha h + y)

alpha is the number of sublayers by default; any alpha > 1 will do for shallow nets. The first block (first attention, first feed-forward) has
alpha 1, and the first sublayer has no N2. The shortcut keeps alpha / sqrt(alpha^2 + 1) of the stream at each norm, which is about exp(-1 / (2 S))
over S sublayers. Depth is counted in sublayers. The paper's norms have no bias: give norm=nn.RMSNorm, or a LayerNorm without one. No weight starts
smaller than usual. Parameters: two norms a sublayer. Cost a token: reads 4 dim, writes 3 dim.
Source: Chen and Wei, Post-LayerNorm Is Back: Stable, Expressive, and Deep, 2026, arXiv 2601.19895.
"""

from typing import Any

from torch import Tensor

from skipway._errors import SchemeError
from skipway.schemes._base import Scheme, Traffic


class Keel(Scheme):
    """N2(alpha h + F(N1(h))). Options: alpha (default: the number of sublayers)."""

    placement = "pre"                       # of the branch; the norm of the sum comes on top
    traffic = Traffic(4, 3)

    def build(self, alpha: float | None = None) -> None:
        if alpha is None and self.depth is None:
            raise SchemeError("scheme keel needs the depth of the stack for alpha; give depth=, the number of sublayers, or alpha=")
        self.alpha = 1.0 if self.index < self.per_block else float(self.depth or 0) if alpha is None else alpha
        self.norm = self.make_norm(self.dim)
        self.post_norm = None if self.first else self.make_norm(self.dim)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return self.norm(stream), None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        h = (stream if self.alpha == 1.0 else self.alpha * stream) + y
        return h if self.post_norm is None else self.post_norm(h)
