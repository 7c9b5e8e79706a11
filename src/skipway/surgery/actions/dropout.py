"""dropout: dropout on the branch, `y = x + dropout(F(x), p)`, in training."""

from torch import Tensor
from torch.nn import functional as F

from skipway.surgery._action import Action


class Dropout(Action):
    """Options: p."""

    def build(self, p: float) -> None:
        self.p = self.probability(p)

    def change(self, shortcut: Tensor, branch: Tensor) -> tuple[Tensor, Tensor]:
        return shortcut, F.dropout(branch, self.p, self.training)
