"""dropout: dropout on the branch, `y = x + dropout(F(x), p)`, in training."""

from torch import Tensor
from torch.nn import functional as F

from skipway._errors import RewireError
from skipway.surgery._action import Action


class Dropout(Action):
    """Options: p."""

    def build(self, p: float) -> None:
        if not 0 <= p < 1:
            raise RewireError(f"rewire: dropout wants 0 <= p < 1, got {p}; to leave the branch out use .drop()")
        self.p = p
        self.exact = p == 0

    def change(self, shortcut: Tensor, branch: Tensor) -> tuple[Tensor, Tensor]:
        return shortcut, F.dropout(branch, self.p, self.training)
