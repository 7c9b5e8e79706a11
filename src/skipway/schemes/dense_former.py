"""dense_former: after a block the stream becomes a weighted mean of itself and of the states after earlier blocks.

    write, last sublayer of block i, where period divides i:    X_i = h + y          h = sum_{j <= i, i - j divisible by dilation} alpha_ij X_j
    everywhere else:                                            h + y

with X_0 the input of the stack and alpha_ii = 1, the others 0 at the start, so that the start is pre_norm. read(h) = N(h); a final norm follows.
Depth is counted in blocks. Parameters: one norm a sublayer and about N / dilation scalars a block. Cost: every X_j is kept.
Source: Pagliardini, Mohtashami, Fleuret, Jaggi, DenseFormer, 2024, arXiv 2402.02622.
"""

from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import SchemeError
from skipway.schemes._base import Scheme, Traffic

State = tuple[Tensor, ...]              # the stream, then X_0, X_1, ...


class DenseFormer(Scheme):
    """Depth-weighted averages. Options: dilation, period (4 and 5 are the paper's choice for deep nets)."""

    placement = "pre"
    at_start = "pre_norm"
    final_norm = True

    def build(self, dilation: int = 1, period: int = 1) -> None:
        if dilation < 1 or period < 1:
            raise SchemeError(f"scheme dense_former: dilation {dilation}, period {period}; wanted both at least 1")
        self.norm = self.make_norm(self.dim)
        self.number = self.block + 1                        # of this block's state
        self.ends = (self.index + 1) % self.per_block == 0 or (self.depth is not None and self.last)
        self.mixes = self.ends and self.number % period == 0
        self.taken = tuple(range(self.number % dilation, self.number + 1, dilation))
        if self.mixes:
            self.alpha = nn.Parameter(torch.zeros(len(self.taken)))
            with torch.no_grad():
                self.alpha[-1] = 1.0
        self.traffic = Traffic(3 + len(self.taken) * self.mixes, 2 + self.mixes)

    def enter(self, x: Tensor) -> State:
        return x, x

    def read(self, stream: State) -> tuple[Tensor, None]:
        return self.norm(stream[0]), None

    def write(self, stream: State, y: Tensor, memo: Any) -> State:
        h, *states = stream
        h = h + y
        if not self.ends:
            return h, *states
        states.append(h)
        if self.mixes:
            h = torch.stack([self.alpha[k] * states[j] for k, j in enumerate(self.taken)]).sum(0)
        return h, *states

    def leave(self, stream: State) -> Tensor:
        return stream[0]
