"""momentum: the branch pushes a velocity and the velocity moves the stream, which makes the step invertible without a second lane of inputs.

    enter(x) = (x, 0)          v <- gamma v + (1 - gamma) F(N(x))          x <- x + v

    undo: x <- x - v,  v <- (v - (1 - gamma) F(N(x))) / gamma

With gamma = 0 it is pre_norm (and cannot be undone). Undoing divides by gamma at every sublayer, so that rounding errors grow as gamma^-S over S
sublayers: 24,000 times at gamma 0.9 and S = 96. For deep stacks choose gamma nearer to 1, or keep the stream alone in float64 (stream_dtype);
`nn.Stack` refuses to run one backwards whose gradients would be off.
Parameters: one norm a sublayer. Cost a token: reads 4 dim, writes 3 dim; the stream is 2 dim wide.
Source: Sander, Ablin, Blondel, Peyré, Momentum Residual Neural Networks, 2021, arXiv 2102.07870.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from skipway._errors import SchemeError
from skipway.schemes._base import Scheme, Traffic

State = tuple[Tensor, Tensor]           # x, v


class Momentum(Scheme):
    """x + v with v = gamma v + (1 - gamma) F(N(x)). Option: gamma, above 0 and below 1."""

    placement = "pre"
    final_norm = True
    reversible = True
    traffic = Traffic(4, 3)

    def build(self, gamma: float = 0.9) -> None:
        if not 0 < gamma < 1:
            raise SchemeError(f"scheme momentum: gamma is {gamma}; wanted above 0, so that a step can be undone, and below 1, so that it moves")
        self.norm = self.make_norm(self.dim)
        self.gamma = gamma
        self.undo_growth = 1 / gamma

    def enter(self, x: Tensor) -> State:
        return x, torch.zeros_like(x)

    def read(self, stream: State) -> tuple[Tensor, None]:
        return self.norm(stream[0]), None

    def write(self, stream: State, y: Tensor, memo: Any) -> State:
        x, v = stream
        v = self.gamma * v + (1 - self.gamma) * y
        return x + v, v

    def leave(self, stream: State) -> Tensor:
        return stream[0]

    def undo(self, stream: State, branch: Callable[[Any], Tensor]) -> State:
        x, v = stream
        before = x - v
        return before, (v - (1 - self.gamma) * branch(self.norm(before))) / self.gamma
