"""layer_norm_scaling: pre-norm whose normed input shrinks with depth (LNS).

    read(h) = N(h) / sqrt(l)          write(h, y) = h + y          after the stack: a final norm

l is the number of the block, from 1; the sublayers of a block share it. Start every weight with its plain standard deviation: a further
1 / sqrt(2 N) on the output projections undoes the scheme. Parameters: one norm a sublayer. Cost a token: reads 3 dim, writes 2 dim.
Source: Sun et al., The Curse of Depth in Large Language Models, 2025, arXiv 2502.05795.
"""

from typing import Any

from torch import Tensor

from skipway.schemes._base import Scheme, Traffic


class LayerNormScaling(Scheme):
    """h + F(N(h) / sqrt(l))."""

    placement = "pre"
    final_norm = True
    traffic = Traffic(3, 2)

    def build(self) -> None:
        self.scale = (self.block + 1) ** -0.5
        self.norm = self.make_norm(self.dim)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return self.norm(stream) * self.scale, None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return stream + y
