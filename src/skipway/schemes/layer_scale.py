"""layer_scale: a learned factor a channel on the branch, small at the start.

    read(h) = N(h)          write(h, y) = h + s y          after the stack: a final norm

Initial values: s = 0.1 up to 18 blocks, 1e-5 up to 24, 1e-6 above, or `start`. Depth is counted in blocks. Keep weight decay off s, and s out of
half precision: 1e-6 is below float16's normal range. Parameters: one norm and dim a sublayer. Cost a token: reads 3 dim, writes 2 dim.
Source: Touvron et al., Going Deeper with Image Transformers (CaiT), 2021, arXiv 2103.17239.
"""

from typing import Any

from torch import Tensor

from skipway.schemes._base import Scheme, Traffic


class LayerScale(Scheme):
    """h + s F(N(h)). Options: start (of s; None: by depth)."""

    placement = "pre"
    final_norm = True
    traffic = Traffic(3, 2)

    def build(self, start: float | None = None) -> None:
        if start is None:
            start = 0.1 if self.blocks <= 18 else 1e-5 if self.blocks <= 24 else 1e-6
        self.norm = self.make_norm(self.dim)
        self.scale = self.vector(start)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return self.norm(stream), None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return stream + self.scale * y
