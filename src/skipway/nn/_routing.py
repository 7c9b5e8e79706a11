"""Which keyword arguments of a call go to which branch, and which results of a branch go on to later ones."""

import inspect
from collections.abc import Iterable
from typing import Any

from torch import nn


def takes(branch: nn.Module) -> frozenset[str] | None:
    """Names of the keyword arguments that a branch takes: its attribute `takes`, else those of its forward; None where it takes any."""
    told = getattr(branch, "takes", None)
    if told is not None:
        return frozenset(told)
    parameters = inspect.signature(branch.forward).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))


def gives(branch: nn.Module) -> tuple[str, ...]:
    """Names of what a branch returns behind y for the branches after it: its attribute `gives`."""
    return tuple(getattr(branch, "gives", ()))


def chosen(kwargs: dict[str, Any], names: frozenset[str] | None) -> dict[str, Any]:
    """The arguments that a branch takes."""
    return kwargs if names is None else {k: v for k, v in kwargs.items() if k in names}


def refuse_unknown(kwargs: Iterable[str], names: Iterable[frozenset[str] | None]) -> None:
    """Raises TypeError where no branch takes an argument."""
    known = list(names)
    for key in kwargs:
        if not any(n is None or key in n for n in known):
            told = sorted(frozenset().union(*(n for n in known if n is not None)))
            raise TypeError(f"no branch takes {key!r}; they take {', '.join(told)}")
