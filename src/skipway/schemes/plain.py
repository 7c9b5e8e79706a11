"""plain: the identity skip.

    read(h) = h          write(h, y) = h + y

Parameters: none. Cost a token: reads 2 dim, writes 1 dim. Start: plain.
Source: He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition, 2015, arXiv 1512.03385.
"""

from typing import Any

from torch import Tensor

from skipway.schemes._base import Scheme


class Plain(Scheme):
    """h + F(h)."""

    at_start = "plain"

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return stream, None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return stream + y
