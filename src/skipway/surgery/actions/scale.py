"""scale: constants on both operands, `y = skip x + branch F(x)`."""

from torch import Tensor

from skipway._errors import RewireError
from skipway.surgery._action import Action


class Scale(Action):
    """Options: branch, skip (numbers)."""

    def build(self, branch: float = 1.0, skip: float = 1.0) -> None:
        for name, value in (("branch", branch), ("skip", skip)):
            if not isinstance(value, (int, float)):
                raise RewireError(f"rewire: scale wants a number for {name}, got {type(value).__name__}; for learned scales use layer_scale or gate")
        self.branch, self.skip = branch, skip
        self.exact = branch == skip == 1

    def change(self, shortcut: Tensor, branch: Tensor) -> tuple[Tensor, Tensor]:
        return (shortcut if self.skip == 1 else shortcut * self.skip), (branch if self.branch == 1 else branch * self.branch)
