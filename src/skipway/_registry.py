"""Registries whose members are the files of a folder: adding a member is adding a file.

A member is a module of the package `package`; its name is the file name with underscores shown as hyphens. Modules whose
names start with an underscore are not members. Other distributions add members with an entry point of the group
`package` (for example `skipway.rules`).
"""

import importlib
import importlib.metadata
import pkgutil
from types import ModuleType


def names(package: str) -> tuple[str, ...]:
    """Names of all members, sorted, without importing them."""
    home = importlib.import_module(package)
    own = {m.name.replace("_", "-") for m in pkgutil.iter_modules(home.__path__) if not m.name.startswith("_")}
    return tuple(sorted(own | {point.name for point in importlib.metadata.entry_points(group=package)}))


def load(package: str, name: str) -> ModuleType:
    """The member's module, imported on first use. Raises KeyError with the known names."""
    known = names(package)
    if name not in known:
        raise KeyError(f"{package} has no member {name!r}; it has {', '.join(known)}")
    for point in importlib.metadata.entry_points(group=package):
        if point.name == name:
            return point.load()
    return importlib.import_module(f"{package}.{name.replace('-', '_')}")
