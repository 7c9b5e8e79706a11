"""Gives a branch the norm before its output projection that some schemes ask for."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from torch import nn

from skipway._errors import SchemeError
from skipway.schemes import Scheme


@runtime_checkable
class TakesInnerNorm(Protocol):
    """A branch that can norm what its output projection reads."""

    def inner_norm(self, make: Callable[[int], nn.Module]) -> None:
        """Makes that norm, of the width that the projection reads, and keeps it as a module of the branch."""
        ...


def place(scheme: Scheme, branch: nn.Module, path: str) -> None:
    """Puts the norm in where the scheme wants one. Raises SchemeError where the branch cannot take it."""
    if not scheme.inner_norm:
        return
    if isinstance(branch, TakesInnerNorm):
        branch.inner_norm(scheme.make_norm)
        return
    matrices = [(k, m) for k, m in enumerate(branch) if isinstance(m, nn.Linear)] if isinstance(branch, nn.Sequential) else []
    if not isinstance(branch, nn.Sequential) or len(matrices) < 2:      # a plain feed-forward has two matrices or more, and the last one writes
        kind = type(branch).__name__
        raise SchemeError(f"scheme {scheme.name()} wants a norm before the output projection of the branch {path or kind}, which does not take one; "
                          f"give {kind} a method inner_norm(make) that puts make(width) there")
    k, last = matrices[-1]
    branch.insert(k, scheme.make_norm(last.in_features))
