"""The drawing in plain characters, for a terminal; and the one place that draws in any format.

The same layout as the SVG (`skipway.report.svg`): each stream is a vertical line, branches hang off it, findings stand where they are.
"""

from collections.abc import Collection
from typing import Any

from skipway._errors import UsageError
from skipway._registry import load
from skipway.report._drawing.characters import write
from skipway.report._drawing.layout import layout
from skipway.report._groups import count
from skipway.report._load import as_report

FORMATS = ("text", "svg", "html")


def render(
    report: dict[str, Any], *, color: bool = False, width: int = 100, open: str | Collection[str] = "none", only: str | None = None,
    ascii_only: bool = False,
) -> str:
    """The drawing of a report in plain characters; every line fits `width` columns (40 at least).

    open: "none" or "all" repeats block by block. only: the name of the one main stream that is drawn. ascii_only: no other character.
    Raises UsageError where `only` names no main stream.
    """
    wiring = report["wiring"]
    target = f"  [{report['target']}]" if report["target"] else ""
    title = f"{wiring['model'] or 'model'}  {count(wiring['parameters'])} parameters{target}"
    return write(layout(wiring, report["findings"], open, only), title, width=width, color=color, ascii_only=ascii_only)


def draw(
    data: dict[str, Any], form: str = "text", *, open: bool = False, only: str | None = None, color: bool = False, width: int = 100,
    ascii_only: bool = False,
) -> str:
    """A report's or a wiring's dictionary drawn as "text" (plain characters), "svg" or "html" (a page with the table of sites).

    Raises UsageError: another format, a dictionary of another schema, no such stream, or a page with folds open or of one stream.
    """
    if form not in FORMATS:
        raise UsageError(f"draw: got format {form!r}, want one of {', '.join(FORMATS)}")
    report = as_report(data, "draw")
    wanted = "all" if open else "none"
    if form == "text":
        return render(report, color=color, width=width, open=wanted, only=only, ascii_only=ascii_only)
    if form == "svg":
        drawn: str = load("skipway.report", "svg").render(report, open=wanted, only=only)
        return drawn
    if open or only is not None:
        what = "open repeats" if open else "one stream"
        raise UsageError(f"draw: format html and {what}: the page folds and shows all streams itself; leave that out, or take svg or text")
    page: str = load("skipway.report", "html").render(report)
    return page


def notebook(data: dict[str, Any]) -> str:
    """What a notebook shows of the dictionary of a wiring, a report, a probe or a comparison: HTML. Raises UsageError for another schema."""
    from skipway.report._notebook import fragment
    return fragment(data)
