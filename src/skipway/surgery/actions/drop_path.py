"""drop_path: in training the branch of a sample is left out with probability p, and the others are divided by 1 - p.

Source: Huang et al., Deep Networks with Stochastic Depth, 2016, arXiv 1603.09382, per sample as in Larsson et al., 2016, arXiv 1605.07648.
"""

from torch import Tensor

from skipway.surgery._action import Action


class DropPath(Action):
    """Options: p. The first axis is that of the samples."""

    def build(self, p: float) -> None:
        self.p = self.probability(p)

    def change(self, shortcut: Tensor, branch: Tensor) -> tuple[Tensor, Tensor]:
        if not self.training or self.p == 0:
            return shortcut, branch
        kept = branch.new_empty(branch.shape[0], *[1] * (branch.dim() - 1)).bernoulli_(1 - self.p)
        return shortcut, branch * (kept / (1 - self.p))
