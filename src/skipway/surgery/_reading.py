"""Inside a branch: what it reads of the stream goes through a rule; and the two ends of a new skip."""

from typing import Any

from torch import Tensor, nn

from skipway._errors import RewireError
from skipway.surgery._action import Rule
from skipway.surgery._gap import InsertedSkip
from skipway.surgery._stand import Stand, here


class Reading(Stand):
    """Stands for the forward of a module that reads the stream for a branch; `rules` has one rule, or None, for each call of it.

    `instead`: what the rule reads takes the place of what the module would give.
    """

    def __init__(self, module: nn.Module, path: str, rules: list[Rule | None], instead: bool) -> None:
        super().__init__(module, path)
        self.rules, self.instead = rules, instead

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        rule = self.rules[self.turn(len(self.rules))]
        if rule is None:
            return self.run(args, kwargs)
        key = principal(args, kwargs)
        frame, here.frame = here.frame, None                # what a rule adds is none of the model's adds
        try:
            read = rule.read(args[key] if isinstance(key, int) else kwargs[key])
        finally:
            here.frame = frame
        if self.instead:
            return read
        if isinstance(key, int):
            return self.run((*args[:key], read, *args[key + 1:]), kwargs)
        return self.run(args, {**kwargs, key: read})


class End(Stand):
    """Stands for the forward of a module at an end of a new skip."""

    def __init__(self, module: nn.Module, path: str, skip: InsertedSkip) -> None:
        super().__init__(module, path)
        self.skip = skip


class Entering(End):
    """Where it begins: what the module is given is kept for the one at which the skip ends."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        key = principal(args, kwargs)
        self.skip.enter(args[key] if isinstance(key, int) else kwargs[key])
        return self.run(args, kwargs)


class Leaving(End):
    """Where it ends: what the module gives, or the first of what it gives, is added to what was kept."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        out = self.run(args, kwargs)
        several = isinstance(out, (tuple, list)) and not hasattr(out, "_fields")
        if not isinstance(out[0] if several else out, Tensor):
            raise RewireError(f"rewire: {self.path!r} gives {type(out).__name__}, and a skip is added to a tensor or to the first of a tuple; end "
                              "it at the module inside that gives a tensor")
        frame, here.frame = here.frame, None
        try:
            return type(out)([self.skip(out[0]), *out[1:]]) if several else self.skip(out)
        finally:
            here.frame = frame


def principal(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Where the first floating tensor is among a module's arguments: its position, or its name."""
    for key, value in (*enumerate(args), *kwargs.items()):
        if isinstance(value, Tensor) and value.is_floating_point():
            return key
    raise RewireError("rewire: a module that was planned to read the stream was given no tensor; undo the edit and rewire with these inputs")
