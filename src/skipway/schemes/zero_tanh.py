"""zero_tanh: a learned scalar behind a tanh on the branch, zero at the start.

    read(h) = N(h)          write(h, y) = h + tanh(a) y          after the stack: a final norm

Initial values: a = 0, so new sublayers in a trained model change nothing at first: the start is the identity, bit for bit. Parameters: one norm and
one scalar a sublayer. Cost a token: reads 3 dim, writes 2 dim.
Source: Alayrac et al., Flamingo: a Visual Language Model for Few-Shot Learning, 2022, arXiv 2204.14198.
"""

from typing import Any

import torch
from torch import Tensor

from skipway.schemes._base import Scheme, Traffic


class ZeroTanh(Scheme):
    """h + tanh(a) F(N(h)). Options: start (of a)."""

    placement = "pre"
    at_start = "identity"
    final_norm = True
    traffic = Traffic(3, 2)

    def build(self, start: float = 0.0) -> None:
        self.norm = self.make_norm(self.dim)
        self.scale = self.vector(start, 1)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return self.norm(stream), None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return stream + torch.tanh(self.scale) * y
