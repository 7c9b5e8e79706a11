"""drop: the sublayer is taken out, `y = x`. It is still computed, and gets no gradient."""

from torch import Tensor

from skipway.surgery._action import Action


class Drop(Action):
    """Only the shortcut."""

    def join(self, shortcut: Tensor, branch: Tensor) -> Tensor:
        return shortcut if branch.shape == shortcut.shape else shortcut.expand_as(shortcut + branch)
