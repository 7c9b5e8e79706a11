"""rezero: a learned scalar on the branch, zero at the start, and no norm.

    read(h) = h          write(h, y) = h + a y

Initial values: a = 0: the start is the identity, bit for bit, and the first gradient of the branch is exactly zero.
The paper's equation has one a for each x <- x + a F(x), and so has this; its transformer uses one a for both sublayers of a block, half as many.
A sublayer here holds its own parameters and no one else's (it is saved, sharded and exchanged alone), so it does not share one by itself; to have
the paper's transformer to the letter, tie them once the stack is built: `layers[k + 1].scheme.scale = layers[k].scheme.scale`, k even.
Parameters: one scalar a sublayer. Cost a token: reads 2 dim, writes 1 dim.
Source: Bachlechner et al., ReZero is All You Need: Fast Convergence at Large Depth, 2020, arXiv 2003.04887.
"""

from typing import Any

from torch import Tensor

from skipway.schemes._base import Scheme


class ReZero(Scheme):
    """h + a F(h)."""

    at_start = "identity"

    def build(self) -> None:
        self.scale = self.vector(0.0, 1)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return stream, None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return stream + self.scale * y
