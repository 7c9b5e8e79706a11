"""drop_path: in training the branch of a sample is left out with probability p, and the others are divided by 1 - p.

Source: Huang et al., Deep Networks with Stochastic Depth, 2016, arXiv 1603.09382, per sample as in Larsson et al., 2016, arXiv 1605.07648.
"""

from torch import Tensor

from skipway._errors import RewireError
from skipway.surgery._action import Action


class DropPath(Action):
    """Options: p. The first axis is that of the samples."""

    def build(self, p: float) -> None:
        if not 0 <= p < 1:
            raise RewireError(f"rewire: drop_path wants 0 <= p < 1, got {p}; p = 1 for all samples is .drop()")
        self.p = p
        self.exact = p == 0

    def change(self, shortcut: Tensor, branch: Tensor) -> tuple[Tensor, Tensor]:
        if not self.training or self.p == 0:
            return shortcut, branch
        kept = branch.new_empty(branch.shape[0], *[1] * (branch.dim() - 1)).bernoulli_(1 - self.p)
        return shortcut, branch * (kept / (1 - self.p))
