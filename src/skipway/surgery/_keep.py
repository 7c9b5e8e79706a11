"""What `read_from` puts on the site that it reads from."""

import torch
from torch import Tensor

from skipway.surgery._action import Action


class Kept(Action):
    """Keeps the state after its join for a later read."""

    exact = True
    kept = False

    def build(self) -> None:
        self.state = torch.empty(0)

    def seen(self, shortcut: Tensor, branch: Tensor, state: Tensor) -> None:
        self.state = state
