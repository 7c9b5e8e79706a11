"""unregistered-blocks: residual blocks run in forward without being registered submodules.

What it does
    Reports modules that ran in the recorded forward, contain a join, and are not among the model's submodules.
Why it matters
    Their parameters are not in `parameters()`: no optimizer trains them, `to()` does not move them and no checkpoint
    holds them. In maruya24/pytorch_robotics_transformer#3 the parameter count did not change with the number of layers.
Fires on
    Blocks in a plain list, tuple or dictionary attribute; blocks that forward makes anew; blocks held by an object that
    is no module.
Quiet on
    nn.ModuleList, nn.ModuleDict, nn.Sequential, and blocks registered with `add_module`. Modules without parameters. A
    frozen teacher held outside on purpose, as long as it is not on the model's own stream. Plain lists that hold
    registered modules a second time.
What to do
    Put the blocks into nn.ModuleList (or ModuleDict), and check that the number of parameters grows with the depth.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.wiring.record import Call

CODE = "SKW606"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    calls = facts.record.calls
    told: set[int] = set()
    for call in calls[1:]:
        inside = [i for i in _owners(facts, call) if not calls[i].registered]
        if call.registered or inside or id(call.module) in told:
            continue
        told.add(id(call.module))
        count = sum(p.numel() for p in call.module.parameters())
        if not count or not any(facts.graph.learned[n] for n in range(call.first, call.last)):
            continue
        text = (f"`{call.path}` runs in forward but is no registered submodule: its {count} parameters are missing from parameters(), "
                f"so they are not trained, moved or saved; hold the blocks in nn.ModuleList")
        yield Hit(call.path, text, None, call.where, {"parameters": count})


def _owners(facts: Facts, call: Call) -> list[int]:
    found = []
    while call.parent > 0:
        call = facts.record.calls[call.parent]
        found.append(call.id)
    return found


class _Cell(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm, self.conv1, self.conv2 = nn.GroupNorm(2, width), nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(torch.relu(self.conv1(self.norm(x))))


class _Restorer(nn.Module):
    cells: Sequence[nn.Module] | nn.ModuleList

    def __init__(self, hold: Callable[[list[nn.Module]], Sequence[nn.Module] | nn.ModuleList]) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Sequential(nn.GroupNorm(2, 8), nn.Conv2d(8, 3, 3, padding=1))
        self.cells = hold([_Cell() for _ in range(3)])

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        for cell in self.cells:
            x = cell(x)
        return self.head(x)


def bad() -> Example:
    """The cells are held in a plain tuple."""
    torch.manual_seed(0)
    return Example(_Restorer(tuple).eval(), (torch.randn(1, 3, 8, 8),), where="cells")


def good() -> Example:
    """The cells are held in an nn.ModuleList."""
    torch.manual_seed(0)
    return Example(_Restorer(nn.ModuleList).eval(), (torch.randn(1, 3, 8, 8),), where="cells")
