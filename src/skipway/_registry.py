"""Registries whose members are the files of a folder: adding a member is adding a file.

A member is a module of the package `package`; its name is the file name with underscores shown as hyphens. Modules whose
names start with an underscore are not members. Other distributions add members with an entry point of the group
`package` (for example `skipway.rules`).
"""

import difflib
import functools
import importlib
import importlib.metadata
import pkgutil
from collections.abc import Iterable
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


@functools.cache
def names(package: str) -> tuple[str, ...]:
    """Names of all members, sorted, without importing them. Looked up once a process."""
    home = importlib.import_module(package)
    own = {m.name.replace("_", "-") for m in pkgutil.iter_modules(home.__path__) if not m.name.startswith("_")}
    return tuple(sorted(own | _added(package).keys()))


@functools.cache
def load(package: str, name: str) -> ModuleType:
    """The member's module, imported on first use. Raises KeyError with the known names."""
    if name not in names(package):
        raise KeyError(f"{package} has no member {name!r}; it has {', '.join(names(package))}")
    point = _added(package).get(name)
    found: ModuleType = point.load() if point is not None else importlib.import_module(f"{package}.{name.replace('-', '_')}")
    return found


def spelled(package: str) -> tuple[str, ...]:
    """The names as Python names, with underscores: for members that users write in code."""
    return tuple(name.replace("-", "_") for name in names(package))


def leaf(package: str, name: str, base: type[T]) -> type[T]:
    """The one class derived from a base that a member defines; underscores and hyphens in its name are the same. Raises KeyError as `load` does."""
    module = load(package, name.replace("_", "-"))
    found = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, base) and v.__module__ == module.__name__]
    if len(found) != 1:
        raise TypeError(f"{module.__name__} defines {len(found)} classes of {base.__name__}; wanted one")
    return found[0]


def hint(name: str, known: Iterable[str]) -> str:
    """What to write instead of an unknown name: the nearest known ones, or all."""
    found = sorted(known)
    near = difflib.get_close_matches(name.replace("-", "_"), found, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(found)}"


@functools.cache
def _added(package: str) -> dict[str, importlib.metadata.EntryPoint]:
    """Members that other distributions add."""
    return {point.name: point for point in importlib.metadata.entry_points(group=package)}
