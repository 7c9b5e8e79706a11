"""A skip that the model lacks: from what one module is given to what another, or the same, gives."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from skipway._errors import RewireError


@dataclass(frozen=True)
class Gap:
    """A stretch that nothing bypasses."""

    ends: str               # path of the module that gives its end
    begins: str             # path of the module that is given its start
    calls: int              # how often it runs in one forward

    def __str__(self) -> str:
        return f"the stretch at {self.ends!r}" if self.ends == self.begins else f"the stretch from {self.begins!r} to {self.ends!r}"


def gap(calls: Any, graph: Any, model: str, ends: str, begins: str) -> Gap:
    """The stretch between two modules, one call of each after the other. Raises RewireError where no skip fits around it."""
    first, last = ([c for c in calls if c.path == path and c.outs] for path in (begins, ends))
    for path, found in ((begins, first), (ends, last)):
        if not found:
            raise RewireError(f"rewire: {model} runs no module {path!r} that gives a tensor with these inputs; see print(model) for its paths")
    if len(first) != len(last):
        raise RewireError(f"rewire: {begins!r} runs {len(first)} times in one forward and {ends!r} {len(last)} times; a skip needs both equally "
                          "often")
    start = next((graph.nodes[n].shape for _, n in first[0].ins if graph.signal[n]), None)
    end = next((graph.nodes[n].shape for _, n in last[0].outs if graph.signal[n]), None)
    if start is None or start != end:
        raise RewireError(f"rewire: {begins!r} is given {start} and {ends!r} gives {end}; a skip adds tensors of one shape")
    return Gap(ends, begins, len(first))


class InsertedSkip(nn.Module):
    """y = x + F(x), where x is what the stretch was given."""

    def __init__(self, gap: Gap) -> None:
        super().__init__()
        self.gap = gap
        self.held: list[Tensor] = []

    def enter(self, x: Tensor) -> None:
        """Keep what the stretch is given."""
        self.held.append(x)

    def forward(self, y: Tensor) -> Tensor:
        """The end of the stretch plus its start. Raises RewireError where the start did not run or has another shape."""
        if not self.held:
            raise RewireError(f"rewire: {self.gap} ended without having begun; the code took another way than when it was planned: undo the edit")
        x = self.held.pop()
        if x.shape != y.shape:
            raise RewireError(f"rewire: {self.gap} was given {tuple(x.shape)} and gives {tuple(y.shape)}; a skip adds tensors of one shape")
        return x + y

    def extra_repr(self) -> str:
        return str(self.gap)
