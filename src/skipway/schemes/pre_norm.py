"""pre_norm: the branch reads the normed stream, the stream itself stays raw.

    read(h) = N(h)          write(h, y) = h + y          after the stack: a final norm

Parameters: one norm a sublayer. Cost a token: reads 3 dim, writes 2 dim. Start: pre_norm itself. At random weights the stream's RMS grows as the
square root of the number of sublayers.
Source: Xiong et al., On Layer Normalization in the Transformer Architecture, 2020, arXiv 2002.04745.
"""

from typing import Any

from torch import Tensor

from skipway.schemes._base import Scheme, Traffic


class PreNorm(Scheme):
    """h + F(N(h))."""

    placement = "pre"
    at_start = "pre_norm"
    final_norm = True
    traffic = Traffic(3, 2)

    def build(self) -> None:
        self.norm = self.make_norm(self.dim)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return self.norm(stream), None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return stream + y
