"""none: no skip at all, the ablation that every other scheme is measured against.

    read(h) = h          write(h, y) = y          with normed=True: read(h) = N(h), and after the stack a final norm

With normed=True it is `pre_norm` without its add, and nothing else: what a comparison wants that asks for the effect of the skip alone.
Parameters: none; with normed=True one norm a sublayer. Cost a token: reads 0, writes 1 dim of the stream. Nothing carries the identity:
`skipway check` finds each sublayer (SKW101).
Source: the plain nets of He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition, 2015, arXiv 1512.03385, whose training error grows
with depth.
"""

from typing import Any

from torch import Tensor

from skipway.schemes._base import Scheme, Traffic


class NoSkip(Scheme):
    """F(h), or F(N(h)). Options: normed."""

    traffic = Traffic(0, 1)

    def build(self, normed: bool = False) -> None:
        self.norm = self.make_norm(self.dim) if normed else None
        self.final_norm = normed                                # type: ignore[misc]

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return stream if self.norm is None else self.norm(stream), None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return y
