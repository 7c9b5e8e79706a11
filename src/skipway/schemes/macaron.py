"""macaron: feed-forward sublayers take half a step, so that two of them can stand around an attention.

    ffn, moe:    h + step F(N(h)), step = 1/2          others: h + F(N(h))

A block is ffn, attention, ffn, or, in the Conformer, ffn, attention, convolution, ffn and then a norm on the stream (closing_norm=True); say
per_block=3 or 4. As a splitting of one step of an ordinary differential equation, the order is Strang's: half, whole, half.
Parameters: one norm a sublayer, and one a block with closing_norm. Cost a token: reads 3 dim, writes 2 dim.
Source: Lu et al., Understanding and Improving Transformer From a Multi-Particle Dynamic System Point of View, 2019, arXiv 1906.02762;
Gulati et al., Conformer, 2020, arXiv 2005.08100.
"""

from typing import Any

from torch import Tensor

from skipway.schemes._base import Scheme, Traffic


class Macaron(Scheme):
    """h + F(N(h)), half of it where F is a feed-forward. Options: step, closing_norm (a norm on the stream behind every block)."""

    placement = "pre"
    final_norm = True
    traffic = Traffic(3, 2)

    def build(self, step: float = 0.5, closing_norm: bool = False) -> None:
        self.norm = self.make_norm(self.dim)
        self.step = step if self.role in ("ffn", "moe") else 1.0
        ends = (self.index + 1) % self.per_block == 0 or (self.depth is not None and self.last)
        self.closing = self.make_norm(self.dim) if closing_norm and ends else None
        self.final_norm = not closing_norm                  # type: ignore[misc]

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return self.norm(stream), None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        stream = stream + (y if self.step == 1.0 else self.step * y)
        return stream if self.closing is None else self.closing(stream)
