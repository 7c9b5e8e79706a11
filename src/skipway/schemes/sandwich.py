"""sandwich: a norm before the branch and one behind it; the stream itself stays raw (Sandwich-LN, Peri-LN).

    read(h) = N1(h)          write(h, y) = h + N2(y)          after the stack: a final norm

Initial values: the gain of N2 is `start`, 1 in the papers; with unit norms the stream's RMS is sqrt(S + 1) after S sublayers. Peri-LN norms what
enters the stack as well (`input_norm`). Parameters: two norms a sublayer. Cost a token: reads 4 dim, writes 3 dim.
Source: Ding et al., CogView, 2021, arXiv 2105.13290; Kim et al., Peri-LN, 2025, arXiv 2502.02732.
"""

from typing import Any

from torch import Tensor

from skipway.schemes._base import Scheme, Traffic
from skipway.schemes._norms import filled


class Sandwich(Scheme):
    """h + N2(F(N1(h))). Options: start (gain of N2), input_norm (a norm on what enters the stack)."""

    placement = "sandwich"
    final_norm = True
    traffic = Traffic(4, 3)

    def build(self, start: float = 1.0, input_norm: bool = False) -> None:
        self.norm = self.make_norm(self.dim)
        self.out_norm = filled(self, self.make_norm(self.dim), start)
        self.input_norm = self.make_norm(self.dim) if input_norm and self.first else None

    def enter(self, x: Tensor) -> Tensor:
        return x if self.input_norm is None else self.input_norm(x)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return self.norm(stream), None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return stream + self.out_norm(y)
