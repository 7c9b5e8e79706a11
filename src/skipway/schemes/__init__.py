"""Residual rules, one a file, found by file name. A rule is a pair (read, write) on a stream; see `skipway.schemes._base.Scheme`.

    skipway.schemes.names()                     every rule
    skipway.schemes.load("mhc")                 its class
    skipway.schemes.build("mhc", 512, depth=24, index=3, role="ffn", lanes=4)

Other distributions add rules with an entry point of the group `skipway.schemes`.
"""

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
    return _registry.spelled(__name__)


def load(name: str) -> type[Scheme]:
    """The class of a scheme. Raises SchemeError with the nearest names."""
    if name.replace("-", "_") not in names():
        raise SchemeError(f"unknown scheme {name!r}; {_registry.hint(name, names())}")
    return _registry.leaf(__name__, name, Scheme)


def build(name: str, dim: int, *, depth: int | None = None, index: int = 0, role: str = "other", per_block: int = 2,
          norm: Callable[[int], nn.Module] = nn.LayerNorm, **options: Any) -> Scheme:
    """One sublayer's scheme by name; the arguments are those of `Scheme`."""
    return load(name)(dim, depth=depth, index=index, role=role, per_block=per_block, norm=norm, **options)
