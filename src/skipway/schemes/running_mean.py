"""running_mean: sandwich whose sum is a mean of all that was written, which keeps the variance exactly (Beam).

    read(h) = N1(h)          write(h, y) = sqrt((k - 1) / k) h + sqrt(1 / k) N2(y)          k = i + 2          after the stack: a final norm

i is the number of the sublayer from 0: with what entered the stack, k terms are in the sum after it, each with the weight 1 / sqrt(k). Where they
are independent and of variance 1, so is the stream. Depth is counted in sublayers. Parameters: two norms a sublayer. Cost a token: reads 4 dim,
writes 3 dim.
Source: the model code of Beam-1.0 in transformers 5.24, models/beam (2026): k = 2 (l + 1) for attention and 2 (l + 1) + 1 for the feed-forward of
block l.
"""

from typing import Any

from torch import Tensor

from skipway.schemes._base import Scheme, Traffic


class RunningMean(Scheme):
    """sqrt((k - 1) / k) h + sqrt(1 / k) N2(F(N1(h)))."""

    placement = "sandwich"
    final_norm = True
    traffic = Traffic(4, 3)

    def build(self) -> None:
        terms = self.index + 2
        self.keep, self.add = ((terms - 1) / terms) ** 0.5, terms ** -0.5
        self.norm, self.out_norm = self.make_norm(self.dim), self.make_norm(self.dim)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return self.norm(stream), None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return self.keep * stream + self.add * self.out_norm(y)
