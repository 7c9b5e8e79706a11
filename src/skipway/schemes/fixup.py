"""fixup: no norm; the branch starts at zero, and scalars stand where a norm's bias and gain would.

    read(h) = h + b1          write(h, y) = h + s y + b2

Initial values: the last weights of the branch are 0, so the start is the identity where the branch has no biases; its other weights are He normal
times L^(-1 / (2 m - 2)) with L branches of m layers each (`layers`, 2 by default); s = 1, b1 = b2 = 0. The scalar biases before the inner layers
of a branch are the branch's own, and the classifier starts at 0 as well. Depth is counted in branches, which are the sublayers. Parameters: three
scalars a sublayer. Cost a token: reads 3 dim, writes 2 dim.
Source: Zhang, Dauphin, Ma, Fixup Initialization: Residual Learning Without Normalization, 2019, arXiv 1901.09321.
"""

from typing import Any

from torch import Tensor

from skipway._errors import SchemeError
from skipway.schemes._base import Init, Scheme, Traffic


class Fixup(Scheme):
    """h + s F(h + b1) + b2. Options: layers of a branch (m)."""

    needs_depth = True
    traffic = Traffic(3, 2)

    def build(self, layers: int = 2) -> None:
        if layers < 2:
            raise SchemeError(f"scheme fixup: layers is {layers}; a branch needs 2 or more, of which the last starts at zero")
        self.gain = float(self.depth or 1) ** (-1 / (2 * layers - 2))
        self.bias_in, self.scale, self.bias_out = self.vector(0.0, 1), self.vector(1.0, 1), self.vector(0.0, 1)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return stream + self.bias_in, None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return stream + (self.scale * y + self.bias_out)

    def initial(self) -> dict[str, Init]:
        return {**{kind: Init("he", self.gain) for kind in ("input", "query", "key", "value", "gate", "inner")}, "output": Init("zero")}
