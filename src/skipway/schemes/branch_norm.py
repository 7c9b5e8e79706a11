"""branch_norm: post-norm whose branch is let in over the first steps of training.

    read(h) = h          write(h, y) = N(h + a_t y)          a_t = min(1, t / T)

t counts the steps of the optimizer from 0 and T is `period`, 4000 by default: it is to span the warm-up, which the paper's recipes give 4000
steps. t is the buffer counter.step: `advance()` of the scheme or of `nn.Stack` moves it, once a step, and a state dict keeps it, so that a
resumed run goes on where it was. For a model that is only run, give step= of at least T. Parameters: one norm a sublayer. Cost a token: reads 3
dim, writes 2 dim.
Source: Liu et al., BranchNorm: Robustly Scaling Extremely Deep Transformers, 2023, arXiv 2305.02790.
"""

from typing import Any

from torch import Tensor

from skipway.schemes._base import Scheme, Traffic
from skipway.schemes._counter import Counter


class BranchNorm(Scheme):
    """N(h + min(1, t / T) F(h)). Options: period (T), step (t at the start)."""

    placement = "post"
    traffic = Traffic(3, 2)

    def build(self, period: int = 4000, step: int = 0) -> None:
        self.counter = Counter(self.name(), period, step)
        self.norm = self.make_norm(self.dim)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return stream, None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return self.norm(stream + self.counter.share(y) * y)

    def advance(self, steps: int = 1) -> None:
        self.counter.advance(steps)
