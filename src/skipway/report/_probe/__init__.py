"""Tables of a probe for people and programs, one format a file, found by its name: `render(table, color=, width=)` gives text or bytes.

A format reads the plain dictionary of `Table.to_dict()` and nothing else. One that gives bytes has BINARY = True; one that needs a package of its
own has `ready()`, which raises UsageError where that is missing.
"""

import sys
from typing import Any

from skipway._errors import UsageError
from skipway._registry import load, names


def formats() -> tuple[str, ...]:
    """Names of all formats."""
    return names(__name__)


def render(table: dict[str, Any], form: str = "text", *, color: bool = False, width: int = 100) -> str | bytes:
    """The table in the format `form`. Raises UsageError where there is no such format."""
    made: str | bytes = load(__name__, _known(form)).render(table, color=color, width=width)
    return made


def check_format(form: str, to_stdout: bool) -> None:
    """Raises UsageError, before any work is done, where the format cannot be written: a package is missing, or a terminal would get bytes."""
    module = load(__name__, _known(form))
    if hasattr(module, "ready"):
        module.ready()
    if getattr(module, "BINARY", False) and to_stdout and sys.stdout.isatty():
        raise UsageError(f"--format {form}: it is no text; write it to a file: --output probe.{form}")


def _known(form: str) -> str:
    if form not in formats():
        raise UsageError(f"--format: got {form!r}, want one of {', '.join(formats())}")
    return form
