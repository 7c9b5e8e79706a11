"""gpt2_init: pre-norm whose output projections start smaller by the square root of the number of adds.

    read(h) = N(h)          write(h, y) = h + y          after the stack: a final norm

Initial values: all weights of the branch normal with standard deviation 0.02, its output projection 0.02 / sqrt(S), S being the number of
sublayers (2 N for N blocks of two). It holds for the start only: with Adam the output projections take steps of the usual size. Depth is counted
in sublayers. Parameters: one norm a sublayer. Cost a token: reads 3 dim, writes 2 dim.
Source: Radford et al., Language Models are Unsupervised Multitask Learners, 2019 (GPT-2).
"""

from typing import Any

from torch import Tensor

from skipway.schemes._base import Init, Scheme, Traffic


class Gpt2Init(Scheme):
    """h + F(N(h)) with output weights of 0.02 / sqrt(S). Options: std."""

    placement = "pre"
    at_start = "pre_norm"
    final_norm = True
    needs_depth = True
    traffic = Traffic(3, 2)

    def build(self, std: float = 0.02) -> None:
        self.std = std
        self.norm = self.make_norm(self.dim)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return self.norm(stream), None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return stream + y

    def initial(self) -> dict[str, Init]:
        usual = {kind: Init("normal", self.std) for kind in ("input", "query", "key", "value", "gate", "inner")}
        return {**usual, "output": Init("normal", self.std * (self.depth or 1) ** -0.5)}
