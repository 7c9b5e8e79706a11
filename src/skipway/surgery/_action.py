"""What every action is: a module built for one site that changes what its branch reads, the operands of its join, or the join."""

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor, nn

from skipway._errors import RewireError
from skipway.surgery._spot import Spot
from skipway.surgery._stand import here


class Action(nn.Module):
    """Base of all actions.

    A subclass is a leaf. It gives `build`, whose keyword arguments are the action's options, and some of

        read(x)                         what the branch reads, of what it would have read
        change(shortcut, branch)        both operands of the join
        join(shortcut, branch)          the state after the join, in place of their sum; at most one action of a site does that
        seen(shortcut, branch, state)   looks on

    Tensors are as the model has them; where the channels are not the last axis, `last` and `back` turn them. Raises RewireError, when it is
    built, where it does not fit the site.
    """

    exact: bool = False                 # at its start the model's function is what it was, to the last bit
    near: bool = False                  # at its start the model's function is what it was, up to rounding
    passes: bool = False                # does nothing to read, change and join
    normed: bool = False                # what it reads is normed already: the branch's own norm is left out
    whole: ClassVar[bool] = False       # goes on all sites of a stream or on none
    kept: ClassVar[bool] = True         # can be written to a file

    def __init__(self, spot: Spot, **options: Any) -> None:
        super().__init__()
        self.spot, self.options = spot, options
        try:
            inspect.signature(self.build).bind(**options)
        except TypeError as error:
            raise RewireError(f"rewire: {self.name()}{inspect.signature(type(self).build)}: {error}") from error
        self.build(**options)

    @classmethod
    def name(cls) -> str:
        """The name in the registry."""
        return cls.__module__.rpartition(".")[2].removeprefix("_")

    @classmethod
    def parameters_of(cls) -> list[str]:
        """Names of the options that may be given without their name."""
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD,)
        return [n for n, p in inspect.signature(cls.build).parameters.items() if p.kind in kinds and n != "self"]

    @classmethod
    def does(cls, what: str) -> bool:
        """Whether the action has its own `read`, `change`, `join` or `seen`."""
        return getattr(cls, what) is not getattr(Action, what)

    def build(self, *args: Any, **options: Any) -> None:
        """Makes parameters; its keyword arguments are the action's options."""

    @property
    def reads(self) -> bool:
        """Whether it changes what the branch reads."""
        return self.does("read")

    def read(self, x: Tensor) -> Tensor:
        """What the branch reads."""
        return x

    def change(self, shortcut: Tensor, branch: Tensor) -> tuple[Tensor, Tensor]:
        """Both operands of the join."""
        return shortcut, branch

    def join(self, shortcut: Tensor, branch: Tensor) -> Tensor:
        """The state after the join."""
        return shortcut + branch

    def seen(self, shortcut: Tensor, branch: Tensor, state: Tensor) -> None:
        """Looks at the join as it was performed."""

    def beside(self) -> "dict[int, Action]":
        """Actions that have to be put on earlier sites of the stream for this one, by index."""
        return {}

    def adopt(self, norm: nn.Module) -> None:
        """Take over what the branch's own norm holds, where the action is `normed`."""

    def once(self, x: Tensor, make: Callable[[Tensor], Any]) -> Any:
        """make(x), or what it made of this very x where the branch read it in the running call of the module that joins."""
        if here.read is None:
            return make(x)
        found = here.read.get(self.spot.number)
        if found is None or found[0] is not x:
            found = here.read[self.spot.number] = x, make(x)
        return found[1]

    def probability(self, p: float) -> float:
        """p, the option of actions that leave something out. Raises RewireError where it is none."""
        if not 0 <= p < 1:
            raise RewireError(f"rewire: {self.name()} wants 0 <= p < 1, got {p}; to leave the whole branch out use .drop()")
        self.exact = p == 0
        return p

    def last(self, x: Tensor) -> Tensor:
        """The tensor with its channels last."""
        return x if self.spot.axis == -1 else x.movedim(self.spot.axis, -1)

    def back(self, x: Tensor) -> Tensor:
        """Inverse of `last`."""
        return x if self.spot.axis == -1 else x.movedim(-1, self.spot.axis)

    def extra_repr(self) -> str:
        """The options."""
        return ", ".join(f"{k}={v}" for k, v in self.options.items())


class Rule(nn.ModuleList):
    """All actions of one site, in the order in which they were asked for."""

    def __init__(self, spot: Spot, actions: list[Action]) -> None:
        super().__init__(actions)
        self.spot = spot
        self.joiner = next((k for k, a in enumerate(actions) if a.does("join")), None)
        self.watchers = [k for k, a in enumerate(actions) if a.does("seen")]
        self.changers = [k for k, a in enumerate(actions) if a.does("change")]
        self.readers = [k for k, a in enumerate(actions) if a.reads]
        self.passes = all(a.passes for a in actions)

    @property
    def actions(self) -> list[Action]:
        """The actions."""
        return [self._at(k) for k in range(len(self))]

    def _at(self, k: int) -> Action:
        found: Any = self[k]
        return found

    def read(self, x: Tensor) -> Tensor:
        """What the branches read of the state x."""
        for k in self.readers:
            x = self._at(k).read(x)
        return x

    def forward(self, shortcut: Tensor, branch: Tensor) -> Tensor:
        """The state after the join."""
        for k in self.changers:
            shortcut, branch = self._at(k).change(shortcut, branch)
        state = shortcut + branch if self.joiner is None else self._at(self.joiner).join(shortcut, branch)
        for k in self.watchers:
            self._at(k).seen(shortcut, branch, state)
        return state

    def extra_repr(self) -> str:
        """The site."""
        return str(self.spot)
