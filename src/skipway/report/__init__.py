"""Reports for people and programs, one format a file, found by its name: `render(report, color=, width=)` gives the text.

A format reads the plain dictionary of `Report.to_dict()` and nothing else, so that a report can be rendered again from its JSON. A format
that can hold several reports in one text also has `render_all(reports, color=, width=)`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from skipway._errors import UsageError
from skipway._registry import load, names


def formats() -> tuple[str, ...]:
    """Names of all formats."""
    return names(__name__)


def render(report: dict[str, Any], form: str = "text", *, color: bool = False, width: int = 100) -> str:
    """The report in the format `form`, ending in a newline. Raises UsageError where there is no such format."""
    text: str = load(__name__, _known(form)).render(report, color=color, width=width)
    return text


def several(form: str) -> bool:
    """Whether a text of this format can hold several reports. Raises UsageError where there is no such format."""
    return hasattr(load(__name__, _known(form)), "render_all")


def render_all(reports: Sequence[dict[str, Any]], form: str = "text", *, color: bool = False, width: int = 100) -> str:
    """Several reports as one text. Raises UsageError where the format holds one report only, or where there is no such format."""
    if not several(form):
        ways = ", ".join(name for name in formats() if several(name))
        raise UsageError(f"--format: {form} holds one report, got {len(reports)}; name one target, or take one of {ways}")
    text: str = load(__name__, form).render_all(reports, color=color, width=width)
    return text


def comparison(record: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files of a comparison (schema "skipway.compare/1"): report.html, and each figure as PNG and SVG in figures/.

    Without matplotlib there are no figures beside the page, which draws its own. Raises UsageError for a record of another schema.
    """
    from skipway.report._compare import html, pictures
    yield "report.html", html.render(record).encode()
    if pictures.ready():
        for name, data in pictures.render(record):
            yield f"figures/{name}", data


def _known(form: str) -> str:
    if form not in formats():
        raise UsageError(f"--format: got {form!r}, want one of {', '.join(formats())}")
    return form
