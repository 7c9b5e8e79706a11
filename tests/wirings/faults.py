"""Sublayers that are wired wrong on purpose, and the rule that must name each."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .sites import SiteParts, SitePlan
from .spellings import PLAIN
from .sublayers import Side


@dataclass(frozen=True)
class FaultKind:
    """Codes of which one must be found, those that may stand beside it, and the placements it is planted in."""

    codes: tuple[str, ...]
    also: tuple[str, ...] = ()
    placements: tuple[str, ...] = ("pre", "post", "none")


# A sublayer whose shortcut is lost by another fault stands on the stream, so missing-skip is true beside it.
FAULTS: dict[str, FaultKind] = {
    "missing_skip": FaultKind(("SKW101",)),
    "self_add": FaultKind(("SKW102",), ("SKW101",)),
    "double_skip": FaultKind(("SKW103",)),
    "stale_shortcut": FaultKind(("SKW104",), placements=("pre", "post")),
    "memory_shortcut": FaultKind(("SKW104",), ("SKW101", "SKW108"), ("pre",)),
    "multiplied_skip": FaultKind(("SKW105",), ("SKW101",)),
    "discarded_sum": FaultKind(("SKW106",), ("SKW101",), ("pre", "none")),
    "discarded_branch": FaultKind(("SKW107",), placements=("pre", "none")),
    "normed_shortcut": FaultKind(("SKW201",), ("SKW202", "SKW203"), ("pre",)),
    "missing_final_norm": FaultKind(("SKW204",), placements=("pre",)),
    "broadcast_rows": FaultKind(("SKW501",), placements=("pre", "none")),
    "broadcast_width": FaultKind(("SKW501",), placements=("pre", "none")),
    "broadcast_growing": FaultKind(("SKW501",), placements=("pre", "none")),
    "mutated_shortcut": FaultKind(("SKW602",), ("SKW601",), ("none",)),
    "unmixed_lanes": FaultKind(("SKW801",), placements=("pre",)),
}
BROADCASTING = ("x + y", "y + x", "torch.add(x, y)", "x.add(y)", "x - (-y)", "FloatFunctional().add(x, y)")


class Mutating(nn.Module):
    """A branch that begins with an in-place activation. In a module of its own: in the joining one it could be meant for the stream."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor, side: Side | None = None) -> Tensor:
        y: Tensor = self.branch(F.relu_(x), side)
        return y


class FaultyParts(SiteParts):
    """A sublayer with one of the faults that lie at the join itself."""

    def __init__(self, plan: SitePlan, dim: int, fault: str) -> None:
        super().__init__(plan, dim)
        self.fault, self.fn = fault, None       # no wrapper around norm and branch: the faults need the normed value
        self.mutating = Mutating(self.branch)

    def run(self, x: Tensor, side: Side | None, read: Tensor | None = None) -> Tensor:
        if self.fault == "mutated_shortcut":
            return PLAIN[self.plan.spelling](x, self.mutating(x, side))
        n, y = self.compute(x, side)
        return self.after(self.wrong(x, y, n, side))

    def wrong(self, x: Tensor, y: Tensor, n: Tensor, side: Side | None) -> Tensor:
        """What stands in the place of x + y."""
        add, fault = PLAIN[self.plan.spelling], self.fault
        if fault == "missing_skip":
            return y
        if fault == "self_add":
            return add(y, y)
        if fault == "double_skip":
            return add(x, add(x, y))
        if fault == "multiplied_skip":
            return x * y
        if fault == "normed_shortcut":
            return add(n, y)
        if fault == "memory_shortcut":
            assert side is not None and side.memory is not None
            return add(side.memory, y)
        if fault.startswith("broadcast"):
            return add(x, self.misshapen(y))
        if fault == "discarded_sum":
            torch.add(x, y)                     # computed and never used: the fault
            return y
        assert fault == "discarded_branch"
        return x

    def misshapen(self, y: Tensor) -> Tensor:
        """A branch value whose shape broadcasts against the stream."""
        if self.fault == "broadcast_growing":
            return y.squeeze(1)
        return y[..., :1] if self.fault == "broadcast_width" else y.mean(1)
