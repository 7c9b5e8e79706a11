"""Registries whose members are the files of a folder: adding a member is adding a file.

A member is a module of the package `package`; its name is the file name with underscores shown as hyphens. Modules whose
names start with an underscore are not members. Other distributions add members with an entry point of the group
`package` (for example `skipway.rules`).
"""

import functools
import importlib
import importlib.metadata
import pkgutil
from types import ModuleType


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


@functools.cache
def _added(package: str) -> dict[str, importlib.metadata.EntryPoint]:
    """Members that other distributions add."""
    return {point.name: point for point in importlib.metadata.entry_points(group=package)}
