"""depth_mup: every branch times 1 / sqrt(S), and learning rates to match (Depth-muP).

    read(h) = h          write(h, y) = h + sqrt(base / S) y

S is the number of sublayers, base the depth that was tuned (`base_depth`, 1 by default). With Adam the learning rate of the branches' weights
goes with sqrt(base / S) as well: `tuning` says so, and `Stack.param_groups` applies it. The best settings are the same at all depths for branches
of one layer; for transformer blocks the authors find that they are not: see complete_p, whose alpha = 0.5 is this rule with a norm. Parameters:
none. Cost a token: reads 2 dim, writes 1 dim.
Source: Yang, Yu, Zhu, Hayou, Feature Learning in Infinite-Depth Neural Networks, 2023, arXiv 2310.02244.
"""

from typing import Any

from torch import Tensor

from skipway._errors import SchemeError
from skipway.schemes._base import Scheme, Tuning


class DepthMup(Scheme):
    """h + sqrt(base / S) F(h). Options: base_depth."""

    needs_depth = True

    def build(self, base_depth: int = 1) -> None:
        if base_depth < 1:
            raise SchemeError(f"scheme depth_mup: base_depth is {base_depth}; wanted the number of sublayers of the stack that was tuned, 1 or more")
        self.scale = (base_depth / (self.depth or 1)) ** 0.5

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return stream, None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return stream + self.scale * y

    def tuning(self) -> Tuning:
        return Tuning(matrix=self.scale, vector=self.scale)
