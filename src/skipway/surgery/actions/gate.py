"""gate: a learned gate on the branch for each token, `y = x + 2 sigmoid(w . x + b) F(x)`, with w = b = 0 at the start: a factor of exactly one."""

import torch
from torch import Tensor, nn

from skipway.surgery._action import Action


class Gate(Action):
    """One number between 0 and 2 for each token. Parameters: dim + 1."""

    exact = True

    def build(self) -> None:
        self.weight = nn.Parameter(torch.zeros(self.spot.dim))
        self.bias = nn.Parameter(torch.zeros(1))

    def change(self, shortcut: Tensor, branch: Tensor) -> tuple[Tensor, Tensor]:
        x = self.last(shortcut).to(self.weight.dtype)
        gate = 2 * (x @ self.weight.unsqueeze(-1) + self.bias).sigmoid()
        return shortcut, branch * self.back(gate).to(branch.dtype)
