"""A stand-in for `forward` on one module: an attribute of the module that hides the method of its class.

No class, source or parameter name changes, and taking the attribute away is all that an undo has to do. Stand-ins are plain Python that torch.compile
follows into, and they are copied and pickled with their module.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from skipway._errors import RewireError

if TYPE_CHECKING:
    from skipway.surgery._joining import Frame


class Here(threading.local):
    """What runs in this thread."""

    def __init__(self) -> None:             # runs once in each thread: a compiler guards on whether the attribute is there
        self.frame: Frame | None = None     # of the innermost intercepted call; None where the adds that run are none of the model's
        self.read: dict[int, Any] | None = None     # what that call's rules made of the states that they read, for their joins


here = Here()


class Stand:
    """Base of the stand-ins. A subclass gives `__call__`, and there runs the hidden forward by `run`."""

    def __init__(self, module: nn.Module, path: str) -> None:
        self.module, self.path = module, path
        self.hidden = module.__dict__.get("forward")        # what another tool had put there
        self.calls = 0                                      # since the forward of the model began

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The forward that it hides, for those who ask for its signature."""
        return self.hidden if self.hidden is not None else type(self.module).forward.__get__(self.module)

    @property
    def __code__(self) -> Any:
        """Of the forward that it hides: torch.export looks at it."""
        return getattr(self.__wrapped__, "__code__", None)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The hidden forward."""
        if self.hidden is not None:
            return self.hidden(*args, **kwargs)
        return type(self.module).forward(self.module, *args, **kwargs)

    def turn(self, several: int) -> int:
        """Which of its calls in one forward of the model begins now."""
        if several > 1 and in_backward():
            raise RewireError(f"rewire: {self.path!r} runs {several} times in one forward, and activation checkpointing runs it again in backward, "
                              "where its calls cannot be told apart; checkpoint what is inside it, or nothing")
        call = self.calls % several
        self.calls += 1
        return call


class Planned:
    """A stand-in, how often it runs in one forward of the model, the stream it belongs to, and how to speak of it."""

    def __init__(self, stand: Stand, calls: int, stream: str, said: str) -> None:
        self.stand, self.calls, self.stream, self.said = stand, calls, stream, said


class Watched(Stand):
    """Stands for the forward of the model: counts begin anew, and afterwards every planned module has run as often as planned."""

    def __init__(self, model: nn.Module, edit: Any, planned: list[Planned]) -> None:
        super().__init__(model, "")
        self.edit, self.planned = edit, planned

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for p in self.planned:
            p.stand.calls = 0
        out = self.run(args, kwargs)
        for p in self.planned:
            if p.stand.calls != p.calls:
                self._missing(p)
        return out

    def _missing(self, p: Planned) -> None:
        """Raises RewireError, unless the whole stream was left out: an encoder whose output was given."""
        holder: Any = self.module
        for part in p.stand.path.split(".") if p.stand.path else ():
            holder = getattr(holder, part, None)
        if holder is not p.stand.module:
            raise RewireError(f"rewire: {p.said} did not run: {p.stand.path!r} is another module than the one that was rewired; undo the edit and "
                              "rewire the model as it is now")
        if p.stand.calls or any(other.stand.calls for other in self.planned if other.stream == p.stream):
            raise RewireError(f"rewire: {p.said} ran {p.stand.calls} times in this forward where {p.calls} were planned; the code took another way "
                              "than when it was planned: undo the edit and rewire with these inputs")


def in_backward() -> bool:
    """Whether a backward runs in this thread: then a forward is one that activation checkpointing runs again."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
