"""b2t: post-norm with one more skip, from the bottom of a block to the sum before its last norm.

    write, inside a block:                          N(h + y)
    write, last sublayer of a block:                N(h + b + y)          b: the stream that the block began with

    read(h) = h. A block has per_block >= 2 sublayers; with two it is u = N1(b + F(b)), then N2(b + u + G(u)).

Parameters: one norm a sublayer. Cost a token: reads 3.5 dim and writes 2 dim at two sublayers a block; b is kept over the block.
Source: Takase et al., B2T Connection: Serving Stability and Performance in Deep Transformers, 2022, arXiv 2206.00330.
"""

from typing import Any

from torch import Tensor

from skipway._errors import SchemeError
from skipway.schemes._base import Scheme, Traffic

State = tuple[Tensor, Tensor]           # h, b


class BottomToTop(Scheme):
    """N(h + F(h)), and N(h + b + F(h)) at the end of a block."""

    placement = "post"

    def build(self) -> None:
        if self.per_block < 2:
            raise SchemeError(f"scheme b2t: {self.per_block} sublayer a block; its skip goes around all norms of a block but the last, "
                              "give per_block= of 2 or more")
        self.ends = (self.index + 1) % self.per_block == 0
        self.traffic = Traffic(3 + self.ends, 2)
        self.norm = self.make_norm(self.dim)

    def enter(self, x: Tensor) -> State:
        return x, x

    def read(self, stream: State) -> tuple[Tensor, None]:
        return stream[0], None

    def write(self, stream: State, y: Tensor, memo: Any) -> State:
        h, bottom = stream
        if not self.ends:
            return self.norm(h + y), bottom
        h = self.norm(h + y + bottom)
        return h, h

    def leave(self, stream: State) -> Tensor:
        return stream[0]
