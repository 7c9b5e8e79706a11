"""From a name and a size to a model."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from skipway import _registry
from skipway._errors import ArchitectureNotPublished, UsageError
from skipway.models._base import Config, Model

PACKAGE = "skipway.models"


def names() -> tuple[str, ...]:
    """Names of all architectures, sorted, without importing them."""
    return _registry.spelled(PACKAGE)


def family(name: str) -> type[Model]:
    """The class of an architecture. Raises UsageError with the nearest names, ArchitectureNotPublished where nobody may know it."""
    if name.replace("-", "_") not in names():
        raise UsageError(f"unknown model {name!r}; {_registry.hint(name, names())}")
    module = _registry.load(PACKAGE, name.replace("_", "-"))
    if hasattr(module, "NOT_PUBLISHED"):
        raise ArchitectureNotPublished(module.NOT_PUBLISHED)
    return _registry.leaf(PACKAGE, name, Model)


def sizes(name: str) -> dict[str, Config]:
    """The published sizes of an architecture and their numbers, and tiny."""
    made: dict[str, Config] = _registry.load(PACKAGE, family(name).name().replace("_", "-")).SIZES
    return made


def build(name: str, size: str = "tiny", scheme: str | None = None, scheme_options: Mapping[str, Any] | None = None, **overrides: Any) -> Model:
    """A model with random weights, on the default device (`with torch.device("meta")` builds one without memory).

    size        a published size or "tiny"
    scheme      residual rule of every block; None is the published one. scheme_options: its options
    overrides   fields of the configuration, such as blocks=4, vocab=256

    Raises UsageError for an unknown model, size or field, with the nearest names; SchemeError for the rule.
    """
    kind = family(name)
    known = sizes(name)
    if size not in known:
        raise UsageError(f"unknown size {size!r} of {name}; {_registry.hint(size, known)}")
    config = known[size]
    fields = {f.name for f in dataclasses.fields(config)}
    for field in overrides:
        if field not in fields:
            raise UsageError(f"{name} has no field {field!r}; {_registry.hint(field, fields)}")
    return kind(dataclasses.replace(config, **overrides), scheme, scheme_options)
