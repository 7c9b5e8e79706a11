"""Reports for people and programs, one format a file, found by its name: `render(report, color=, width=)` gives the text.

A format reads the plain dictionary of `Report.to_dict()` and nothing else, so that a report can be rendered again from its JSON.
"""

from typing import Any

from skipway._errors import UsageError
from skipway._registry import load, names


def formats() -> tuple[str, ...]:
    """Names of all formats."""
    return names(__name__)


def render(report: dict[str, Any], form: str = "text", *, color: bool = False, width: int = 100) -> str:
    """The report in the format `form`, ending in a newline. Raises UsageError where there is no such format."""
    if form not in formats():
        raise UsageError(f"--format: got {form!r}, want one of {', '.join(formats())}")
    text: str = load(__name__, form).render(report, color=color, width=width)
    return text
