"""ablate: the skip is taken out, `y = F(x)`."""

from torch import Tensor

from skipway.surgery._action import Action


class Ablate(Action):
    """Only the branch."""

    def join(self, shortcut: Tensor, branch: Tensor) -> Tensor:
        return branch if branch.shape == shortcut.shape else branch.expand_as(shortcut + branch)
