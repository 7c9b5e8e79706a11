"""skip_init: a learned scalar on the branch in place of batch norm's own down-scaling.

    read(h) = h          write(h, y) = h + a y

Initial values: a = 0 (the identity, bit for bit), or 1 / sqrt(N) with start="depth", the size that batch norm gives a branch in a net of N residual
blocks; the paper finds both to train. Depth is counted in residual branches of a convolutional net, which are the sublayers here. Parameters: one
scalar a sublayer. Cost a token: reads 2 dim, writes 1 dim.
Source: De and Smith, Batch Normalization Biases Residual Blocks Towards the Identity Function in Deep Networks, 2020, arXiv 2002.10444.
"""

from typing import Any

from torch import Tensor

from skipway._errors import SchemeError
from skipway.schemes._base import Scheme


class SkipInit(Scheme):
    """h + a F(h). Options: start of a (a number, or "depth")."""

    at_start = "identity"

    def build(self, start: float | str = 0.0) -> None:
        if start == "depth":
            if self.depth is None:
                raise SchemeError("scheme skip_init needs the depth of the stack for start='depth'; give depth=, the number of sublayers")
            start = self.depth ** -0.5
        if isinstance(start, str):
            raise SchemeError(f"scheme skip_init: start is {start!r}; wanted a number or 'depth'")
        self.scale = self.vector(start, 1)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return stream, None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return stream + self.scale * y
