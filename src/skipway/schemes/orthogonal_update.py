"""orthogonal_update: only the part of the branch's result that stands at a right angle to the stream is added.

    read(h) = N(h)          write(h, y) = h + (y - s h)          s = <h, y> / (<h, h> + eps), over the width of one token

|h|^2 grows by |y - s h|^2 alone, and no sublayer can shrink or stretch the stream along itself.
Parameters: one norm a sublayer. Cost a token: reads 5 dim, writes 2 dim. A final norm follows.
Source: Oh, Kim, et al., Revisiting Residual Connections: Orthogonal Updates for Stable and Efficient Deep Networks, 2025, arXiv 2505.11881.
"""

from typing import Any

from torch import Tensor

from skipway.schemes._base import Scheme, Traffic


class OrthogonalUpdate(Scheme):
    """h + (F(N(h)) less its part along h). Option: eps, added to |h|^2."""

    placement = "pre"
    final_norm = True
    traffic = Traffic(5, 2)

    def build(self, eps: float = 1e-6) -> None:
        self.norm = self.make_norm(self.dim)
        self.eps = eps

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return self.norm(stream), None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        wide = stream.float() if stream.dtype.itemsize < 4 else stream          # sums of squares over the width leave 16 bits
        along = (wide * y).sum(-1, keepdim=True) / (wide.square().sum(-1, keepdim=True) + self.eps)
        return stream + (y - along.to(y.dtype) * stream)
