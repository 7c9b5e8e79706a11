"""Inside the forward of a module that joins: adds are counted, and the planned ones are handed to their rules.

A `Frame` (a torch function mode) counts the calls of each planned kind; where the count reaches a planned join, the rule takes its place. What
runs in modules inside counts too, so that it does not matter which of them have stand-ins of their own.
"""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.overrides import TorchFunctionMode

from skipway._errors import RewireError
from skipway.surgery._action import Rule
from skipway.surgery._stand import Stand, here
from skipway.wiring.functions import ADDS, Kind, kind_of, operands


class Join:
    """One planned join: its rule, and where its operands are."""

    def __init__(self, rule: Rule) -> None:
        self.rule, self.first, self.negative = rule, rule.spot.first, rule.spot.negative

    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], in_place: bool) -> Any:
        if self.rule.passes:
            return func(*args, **kwargs)
        a, b, alpha = operands(args, kwargs)
        target = a
        if in_place:
            a = a.clone()                           # what backward needs of it is kept from the write
        if alpha != 1:
            b = alpha * b
        if self.negative:
            b = -b
        out = self.rule(a, b) if self.first else self.rule(b, a)
        return target.copy_(out) if in_place and out.shape == target.shape and out.dtype == target.dtype else out


class Layout:
    """The planned joins of one call of a module: for each kind which calls are which join, and how many calls there are."""

    def __init__(self) -> None:
        self.joins: dict[Kind, dict[int, Join]] = {}
        self.totals: dict[Kind, int] = {}

    def add(self, rule: Rule) -> None:
        """One more planned join."""
        spot = rule.spot
        self.joins.setdefault(spot.kind, {})[spot.ordinal] = Join(rule)
        self.totals[spot.kind] = spot.total


class Frame(TorchFunctionMode):
    """One running call of a module that joins."""

    def __init__(self, layout: Layout, outer: "Frame | None") -> None:
        super().__init__()
        self.layout, self.outer = layout, outer
        self.counts: dict[Kind, int] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {} if kwargs is None else kwargs
        if func not in ADDS or here.frame is not self:
            return func(*args, **kwargs)
        name, in_place = ADDS[func]
        kind = kind_of(name, *operands(args, kwargs)[:2])
        if kind is None:
            return func(*args, **kwargs)
        seen, outer = self._count(kind), self.outer
        while outer is not None:
            outer._count(kind)
            outer = outer.outer
        join = self.layout.joins[kind].get(seen) if seen >= 0 else None
        return func(*args, **kwargs) if join is None else join(func, args, kwargs, in_place)

    def around(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function inside this frame."""
        frame, read = here.frame, here.read
        here.frame, here.read = self, {}
        try:
            with self:
                return function(*args, **kwargs)
        finally:
            here.frame, here.read = frame, read

    def _count(self, kind: Kind) -> int:
        """How many calls of a planned kind came before; -1 for others, which are left alone: a compiler may forbid to note anything there."""
        if kind not in self.layout.totals:
            return -1
        seen = self.counts.get(kind, 0)
        self.counts[kind] = seen + 1
        return seen


class Joining(Stand):
    """Stands for the forward of a module that joins; `layouts` has one layout for each call of it in a forward of the model."""

    def __init__(self, module: nn.Module, path: str, layouts: list[Layout]) -> None:
        super().__init__(module, path)
        self.layouts = layouts

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        frame = Frame(self.layouts[self.turn(len(self.layouts))], here.frame)
        out = frame.around(self.run, args, kwargs)
        for kind, total in frame.layout.totals.items():
            if frame.counts.get(kind, 0) != total:
                self._missed(frame, kind)
        return out

    def _missed(self, frame: Frame, kind: Kind) -> None:
        planned = frame.layout.joins[kind]
        first = min(planned)
        raise RewireError(f"rewire: {planned[first].rule.spot} was planned as {kind.name} {first + 1} of {frame.layout.totals[kind]} of its shape "
                          f"in a call of {self.path or 'the model'!r}, and {frame.counts.get(kind, 0)} ran; the code took another way or another "
                          "shape than when it was planned: undo the edit and rewire with these inputs")
