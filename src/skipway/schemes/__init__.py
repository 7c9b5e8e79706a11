"""Residual rules, one a file, found by file name. A rule is a pair (read, write) on a stream; see `skipway.schemes._base.Scheme`.

    skipway.schemes.names()                     every rule
    skipway.schemes.load("mhc")                 its class
    skipway.schemes.build("mhc", 512, depth=24, index=3, role="ffn", lanes=4)

Other distributions add rules with an entry point of the group `skipway.schemes`.
"""

import difflib
from collections.abc import Callable
from typing import Any

from torch import nn

from skipway import _registry
from skipway._errors import SchemeError
from skipway.schemes._base import Init as Init
from skipway.schemes._base import Scheme as Scheme
from skipway.schemes._base import Traffic as Traffic
from skipway.schemes._base import Tuning as Tuning


def names() -> tuple[str, ...]:
    """Names of all schemes, sorted, without importing them."""
    return tuple(name.replace("-", "_") for name in _registry.names(__name__))


def load(name: str) -> type[Scheme]:
    """The class of a scheme. Raises SchemeError with the nearest names."""
    key = name.replace("_", "-")
    if key not in _registry.names(__name__):
        near = difflib.get_close_matches(name.replace("-", "_"), names(), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names())}"
        raise SchemeError(f"unknown scheme {name!r}; {hint}")
    module = _registry.load(__name__, key)
    own = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__]
    found: list[type[Scheme]] = [v for v in own if issubclass(v, Scheme)]
    if len(found) != 1:
        raise SchemeError(f"{module.__name__} defines {len(found)} classes of schemes; wanted one")
    return found[0]


def build(name: str, dim: int, *, depth: int | None = None, index: int = 0, role: str = "other", per_block: int = 2,
          norm: Callable[[int], nn.Module] = nn.LayerNorm, **options: Any) -> Scheme:
    """One sublayer's scheme by name; the arguments are those of `Scheme`."""
    return load(name)(dim, depth=depth, index=index, role=role, per_block=per_block, norm=norm, **options)
