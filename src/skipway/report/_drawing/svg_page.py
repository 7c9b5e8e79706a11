"""The drawing as one SVG: bands under each other, equal rows written once, a heading, and the findings as text below."""

from collections import Counter
from typing import Any

from skipway.report._drawing import svg_bands
from skipway.report._drawing.measure import at_most, fitted, width, wrapped
from skipway.report._drawing.parts import Badge, Layout
from skipway.report._drawing.style import style
from skipway.report._drawing.svg_ink import rect, text
from skipway.report._drawing.svg_plan import BADGE, MARGIN, plan
from skipway.report._escape import plain, xml
from skipway.report._groups import count

LINE = 16               # of the legend
MOST = 12               # findings in the legend that are written out


def whole(made: Layout, title: str, legend: bool, prefix: str) -> str:
    """All bands of a layout. What is there several times is written once, under an id that starts with `prefix`."""
    shared = plan(made)
    strips = [svg_bands.draw(band, shared) for band in made.bands]
    often = Counter(strip.body for strip in strips)
    ids = {body: f"{prefix}-b{n}" for n, body in enumerate(b for b, times in often.items() if times > 1 and len(b) > 200 and "data-finding" not in b)}
    out, y = ["<defs>" + "".join(f'<g id="{xml(id_)}">{body}</g>' for body, id_ in ids.items()) + "</defs>"] if ids else [], 8
    if title:
        name, _, more = title.partition("\n")
        out.append(text(MARGIN, y + 22, plain(name, 60), "sw-text sw-title"))
        for line in at_most(wrapped(more, shared.width - 2 * MARGIN, lambda t: width(t, 11)), 2):
            out.append(text(MARGIN, y + 40, line, "sw-quiet"))
            y += LINE
        y += 40
    for strip in strips:
        body = f'<use href="#{xml(ids[strip.body])}"/>' if strip.body in ids else strip.body
        if strip.height:
            out.append(f'<g transform="translate(0 {y})">{body}{strip.head}</g>')
        y += strip.height
    if legend and made.legend:
        body, y = _legend(made.legend, shared.width, y + 8)
        out.append(body)
    return fragment("".join(out), shared.width, y + 8, title.replace("\n", ", ") or "residual wiring")


def fragment(body: str, wide: int, height: int, label: str) -> str:
    """An <svg> of its own."""
    named = f' role="img" aria-label="{xml(label)}"' if label else ' aria-hidden="true"'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" class="sw-drawing" width="{wide}" height="{height}" viewBox="0 0 {wide} {height}"{named}>'
            f'{rect("sw-paper", 0, 0, wide, height, 0)}{body}</svg>')


def standalone(drawing: str) -> str:
    """The drawing as a file, with its style."""
    head, end, rest = drawing.partition(">")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}{end}<style>{style(True)}</style>{rest}\n'


def heading(report: dict[str, Any]) -> str:
    """The model's name and, on the next line, its size and target."""
    wiring = report["wiring"]
    target = f"  [{report['target']}]" if report.get("target") else ""
    return f"{wiring['model'] or 'model'}\n{count(wiring['parameters'])} parameters{target}"


def _legend(found: tuple[Badge, ...], wide: int, y: int) -> tuple[str, int]:
    """Findings as text, the worst first."""
    out = []
    for badge in found[:MOST]:
        tone = badge.severity if badge.severity in ("error", "warning", "note") else "note"
        code = text(MARGIN + BADGE / 2, y + 12.5, fitted(badge.code, 11, BADGE - 4), "sw-tag-text")
        out.append(f'<g class="sw-badge sw-{tone}">{rect("", MARGIN, y, BADGE, 18, 9)}{code}</g>')
        said = badge.text.removeprefix(f"{badge.code} ")
        more = f" (x{len(badge.numbers)})" if len(badge.numbers) > 1 else ""
        for line in at_most(wrapped(said + more, wide - 2 * MARGIN - BADGE - 10, lambda t: width(t, 11.5)), 6):
            out.append(text(MARGIN + BADGE + 10, y + 13, line, "sw-text sw-said"))
            y += LINE
        y += 8
    if len(found) > MOST:
        out.append(text(MARGIN, y + 13, f"and {len(found) - MOST} more; the text report lists all", "sw-quiet"))
        y += LINE + 8
    return "".join(out), y
