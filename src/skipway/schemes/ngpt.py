"""ngpt: the stream lives on the unit sphere and moves a learned part of the way towards the branch's direction.

    enter(x) = U(x)          read(h) = h          write(h, y) = U(h + |alpha| (U(y) - h))          U(v) = v / |v|

alpha is a vector of dim. It starts at 0.05 and is kept as a parameter that starts at 1 / sqrt(dim), times 0.05 sqrt(dim): under Adam, whose step does
not know the size of a parameter, this sets its learning rate. The absolute value is that of the authors' code.
The whole method also keeps every row of a matrix that reads the stream, and every column of one that writes to it, at length 1: call
`skipway.nn.normalise_weights(model)` once at the start and after each step of the optimizer. No weight decay, no warm-up, no norm modules.
Parameters: dim a sublayer. Cost a token: reads 4 dim, writes 2 dim.
Source: Loshchilov, Hsieh, Sun, Ginsburg, nGPT: Normalized Transformer with Representation Learning on the Hypersphere, 2024, arXiv 2410.01131.
"""

import math
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from skipway.schemes._base import Scheme, Traffic


class NGPT(Scheme):
    """U(h + |alpha| (U(F(h)) - h)). Option: start, the first value of alpha."""

    placement = "output"               # its second norm holds the stream itself
    traffic = Traffic(4, 2)

    def build(self, start: float = 0.05) -> None:
        self.alpha = self.vector(1 / math.sqrt(self.dim))
        self.gain = start * math.sqrt(self.dim)

    def enter(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return stream, None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        step = (self.alpha * self.gain).abs()
        return F.normalize(stream + step * (F.normalize(y, dim=-1) - stream), dim=-1)
