"""observe: `fn(site, shortcut, branch, state)` is called with what meets at the join and what comes of it; nothing changes."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from skipway._errors import RewireError
from skipway.surgery._action import Action


class Observe(Action):
    """Options: fn. Cannot be written to a file."""

    exact = True
    kept = False

    def build(self, fn: Callable[..., Any]) -> None:
        if not callable(fn):
            raise RewireError(f"rewire: observe wants a function of (site, shortcut, branch, state), got {type(fn).__name__}")
        self.fn = fn

    def seen(self, shortcut: Tensor, branch: Tensor, state: Tensor) -> None:
        self.fn(self.spot.site, shortcut, branch, state)

    def extra_repr(self) -> str:
        return getattr(self.fn, "__name__", type(self.fn).__name__)
