"""highway: a gate that depends on the input shares between branch and stream.

    read(h) = h          write(h, y) = t y + (1 - t) h          t = sigmoid(W h + b), one a channel

Initial values: b = -2 (the paper takes -1 to -4, lower for deeper nets), so that t is about 0.12 and most of the stream is carried; W as
nn.Linear starts it. Parameters: dim^2 + dim a sublayer. Cost a token: reads 4 dim, writes 2 dim, and dim^2 multiplications. A convex gate
multiplies the stream by 1 - t at each sublayer: deep stacks of it lose the gradient.
Source: Srivastava, Greff, Schmidhuber, Highway Networks, 2015, arXiv 1505.00387.
"""

from typing import Any

import torch
from torch import Tensor, nn

from skipway.schemes._base import Scheme, Traffic


class Highway(Scheme):
    """t F(h) + (1 - t) h. Options: bias (start of b)."""

    traffic = Traffic(4, 2)

    def build(self, bias: float = -2.0) -> None:
        self.gate = nn.Linear(self.dim, self.dim)
        nn.init.constant_(self.gate.bias, bias)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return stream, None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        t = torch.sigmoid(self.gate(stream))
        return t * y + (1 - t) * stream
