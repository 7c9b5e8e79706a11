"""pro_res: pre-norm whose branches are let in one block after the other over the first steps of training (ProRes).

    read(h) = N(h)          write(h, y) = h + a y          a = min(1, t / (T l))          after the stack: a final norm

t counts the steps of the optimizer from 0, l is the number of the block from 1, T is `period`, 1000 in the paper: the last of N blocks is fully
in after T N steps, so a short run never opens the deep ones. t is the buffer counter.step: `advance()` of the scheme or of `nn.Stack` moves it,
once a step, and a state dict keeps it. At t = 0 the stack is the identity, bit for bit. For a model that is only run, give step= of at least T N.
Depth is counted in blocks. Parameters: one norm a sublayer. Cost a token: reads 3 dim, writes 2 dim.
Source: Chen et al., ProRes, 2026, arXiv 2603.05369.
"""

from typing import Any

from torch import Tensor

from skipway.schemes._base import Scheme, Traffic
from skipway.schemes._counter import Counter


class ProRes(Scheme):
    """h + min(1, t / (T l)) F(N(h)). Options: period (T), step (t at the start)."""

    placement = "pre"
    at_start = "identity"
    final_norm = True
    traffic = Traffic(3, 2)

    def build(self, period: int = 1000, step: int = 0) -> None:
        self.counter = Counter(self.name(), period * (self.block + 1), step)
        self.norm = self.make_norm(self.dim)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return self.norm(stream), None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return stream + self.counter.share(y) * y

    def advance(self, steps: int = 1) -> None:
        self.counter.advance(steps)
