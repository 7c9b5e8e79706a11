"""A factor on the shortcut that the norm of each sum takes out again is no fault, also where an activation stands behind the norm."""

import pytest
import torch
from torch import Tensor, nn

import skipway


class Scaled(nn.Module):
    def __init__(self, norm: bool, act: bool) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(4, 16), nn.Linear(16, 3)
        self.branches = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16), nn.LayerNorm(16)) for _ in range(4))
        self.norms = nn.ModuleList(nn.LayerNorm(16) if norm else nn.Identity() for _ in range(4))
        self.act = nn.ReLU() if act else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for branch, norm in zip(self.branches, self.norms):
            h = self.act(norm(2.0 * h + branch(h)))
        return self.head(h)


@pytest.mark.parametrize(("norm", "act", "found"), [(True, False, 0), (True, True, 0), (False, True, 4), (False, False, 4)])
def test_a_factor_that_a_norm_takes_out(norm: bool, act: bool, found: int) -> None:
    torch.manual_seed(0)
    report = skipway.check(Scaled(norm, act), torch.randn(2, 5, 4), select=["SKW103"])
    assert len(report.findings) == found
