"""mix_norm: post-norm in the first blocks, pre-norm in the rest (Mix-LN).

    block <= floor(share N):    read(h) = h          write(h, y) = N(h + y)
    above:                      read(h) = N(h)       write(h, y) = h + y          after the stack: a final norm

share is 1/4 in the paper. Depth is counted in blocks, N of them. Parameters: one norm a sublayer. Cost a token: reads 3 dim, writes 2 dim.
Source: Li, Yin, Liu, Mix-LN, 2024, arXiv 2412.13795.
"""

import math
from typing import Any

from torch import Tensor

from skipway._errors import SchemeError
from skipway.schemes._base import Scheme, Traffic


class MixNorm(Scheme):
    """N(h + F(h)) below, h + F(N(h)) above. Options: share of the blocks that are post-norm."""

    placement = "pre"
    final_norm = True
    needs_depth = True
    traffic = Traffic(3, 2)

    def build(self, share: float = 0.25) -> None:
        if not 0.0 <= share <= 1.0:
            raise SchemeError(f"scheme mix_norm: share is {share}; wanted the share of post-norm blocks, 0 to 1")
        self.post = self.block < math.floor(share * self.blocks)
        self.placement = "post" if self.post else "pre"
        self.norm = self.make_norm(self.dim)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return (stream if self.post else self.norm(stream)), None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return self.norm(stream + y) if self.post else stream + y
