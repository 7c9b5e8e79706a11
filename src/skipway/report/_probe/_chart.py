"""One quantity over depth as a small SVG: no style of its own, no ids, every colour a class of the page's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from skipway.report._escape import plain, xml
from skipway.report._paths import shown
from skipway.report._probe._axes import Axis, axis
from skipway.report._probe._quantities import Quantity, number, text

WIDTH, HEIGHT = 440.0, 170.0
LEFT, RIGHT, TOP, FOOT = 46.0, 8.0, 8.0, 22.0
KINDS = ("self_attention", "cross_attention", "ffn", "moe", "conv", "ssm", "other")
GAP = 1.5                       # between streams, in sites
DOTS = 90                       # sites up to which each gets a dot


@dataclass(frozen=True)
class Span:
    """One stream on the common axis of sites: its name, and the places of its first and last site."""

    name: str
    first: float
    last: float


@dataclass(frozen=True)
class Chart:
    """A chart for the page. values: what a reader is told of each site. names: of what is drawn, in order, where it is more than one."""

    id: str
    title: str
    said: str
    svg: str
    values: tuple[str, ...]
    names: tuple[str, ...]


def places(rows: Sequence[dict[str, Any]]) -> tuple[list[float], list[Span]]:
    """The middle of each site along the chart, and the streams."""
    marks: list[float] = []
    spans: list[tuple[str, int, int]] = []
    at = 0.5
    for position, row in enumerate(rows):
        if spans and spans[-1][0] != row["stream"]:
            at += GAP
        marks.append(at)
        if not spans or spans[-1][0] != row["stream"]:
            spans.append((row["stream"], position, position))
        else:
            spans[-1] = (spans[-1][0], spans[-1][1], position)
        at += 1
    size = (WIDTH - LEFT - RIGHT) / max(at - 0.5, 1)
    x = [round(LEFT + mark * size, 2) for mark in marks]
    return x, [Span(name, x[first], x[last]) for name, first, last in spans]


def kind_of(row: dict[str, Any]) -> str:
    """The kind that colours a site: of its first branch."""
    first = str(row["kind"]).partition("+")[0]
    return first if first in KINDS else "other"


def chart(rows: Sequence[dict[str, Any]], quantity: Quantity) -> Chart:
    """The chart of one quantity."""
    x, spans = places(rows)
    series = [[number(row.get(key)) for row in rows] for key in quantity.keys]
    scale = axis([v for values in series for v in values], quantity.log)
    body = [_grid(scale), _sites(rows, x, spans)]
    for index in reversed(range(len(series))):          # the first is on top
        body.append(_bars(rows, x, series[index], scale) if quantity.bars else _line(rows, x, spans, series[index], scale, index))
        body.append(_broken(x, series[index]))
    body.append(f'<path class="cursor" d="M{LEFT} {TOP}V{HEIGHT - FOOT}" visibility="hidden"/>')
    label = xml(f"{quantity.title}: {quantity.said}; {_range(series[0])}", 400)
    svg = f'<svg class="chart" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{label}">{"".join(body)}</svg>'
    told = tuple(_told([values[i] for values in series], quantity.names) for i in range(len(rows)))
    return Chart(quantity.id, quantity.title, quantity.said, svg, told, quantity.names if len(series) > 1 else ())


def _told(values: Sequence[float | None], names: Sequence[str]) -> str:
    if len(values) == 1:
        return text(values[0]) or "not measured"
    return ", ".join(f"{name} {text(v)}" for name, v in zip(names, values, strict=True) if v is not None) or "not measured"


def _range(values: Sequence[float | None]) -> str:
    found = [v for v in values if v is not None and math.isfinite(v)]
    return f"from {text(min(found))} to {text(max(found))}" if found else "no finite value"


def _y(scale: Axis, value: float) -> float | None:
    at = scale.at(value)
    return None if at is None else round(TOP + (1 - at) * (HEIGHT - TOP - FOOT), 2)


def _grid(scale: Axis) -> str:
    out = []
    for value, name in scale.ticks:
        y = _y(scale, value)
        if y is not None:
            kind = "zero" if value == 0 and not scale.log else "grid"
            out.append(f'<path class="{kind}" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>'
                       f'<text class="tick" x="{LEFT - 6}" y="{y + 3.5:.2f}" text-anchor="end">{name}</text>')
    return "".join(out)


def _sites(rows: Sequence[dict[str, Any]], x: Sequence[float], spans: Sequence[Span]) -> str:
    """Site numbers along the foot, and the name of each stream where there are several."""
    out = []
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 10 ** 9) if len(rows) / s <= 12)
    for mark, row in zip(x, rows, strict=True):
        if row["index"] % step == 0:
            out.append(f'<text class="tick" x="{mark}" y="{HEIGHT - 8}" text-anchor="middle">{row["index"]}</text>')
    if len(spans) > 1:
        for span in spans:
            out.append(f'<path class="span" d="M{span.first} {HEIGHT - FOOT + 4}H{span.last}"><title>{xml(span.name, 80)}</title></path>')
    return "".join(out)


def _bars(rows: Sequence[dict[str, Any]], x: Sequence[float], values: Sequence[float | None], scale: Axis) -> str:
    """One path a kind of branch: every bar is a stroke from zero."""
    zero = _y(scale, 0.0)
    wide = max(1.0, min(14.0, 0.66 * min([b - a for a, b in pairwise(x)] or [14.0])))
    paths: dict[str, list[str]] = {}
    for row, mark, value in zip(rows, x, values, strict=True):
        y = None if value is None else _y(scale, value)
        if y is not None and zero is not None and y != zero:
            paths.setdefault(kind_of(row), []).append(f"M{mark} {zero}V{y}")
    return "".join(f'<path class="bar k-{kind}" stroke-width="{wide:.2f}" d="{"".join(parts)}"/>' for kind, parts in paths.items())


def _line(rows: Sequence[dict[str, Any]], x: Sequence[float], spans: Sequence[Span], values: Sequence[float | None], scale: Axis, index: int) -> str:
    """A line through the sites of each stream, broken where nothing was measured, with a dot a site coloured by its branch."""
    parts, dots = [], []
    open_ = ""
    starts = {span.first for span in spans}
    for row, mark, value in zip(rows, x, values, strict=True):
        y = None if value is None else _y(scale, value)
        if y is None or mark in starts:
            open_ = ""
        if y is not None:
            parts.append(f"{'L' if open_ else 'M'}{mark} {y}")
            open_ = "on"
            if index == 0 and len(rows) <= DOTS:
                dots.append(f'<circle class="dot k-{kind_of(row)}" cx="{mark}" cy="{y}" r="{2.6 if len(rows) > 40 else 3.2}"/>')
    return f'<path class="line line-{index}" d="{"".join(parts)}"/>{"".join(dots)}' if parts else ""


def _broken(x: Sequence[float], values: Sequence[float | None]) -> str:
    """A cross at the head for every value that is not finite."""
    marks = [m for m, v in zip(x, values, strict=True) if v is not None and not math.isfinite(v)]
    crosses = "".join(f"M{m - 3:.2f} {TOP + 2}l6 6m0 -6l-6 6" for m in marks)
    return f'<path class="broken" d="{crosses}"><title>not finite</title></path>' if marks else ""


def site_names(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Each site in words: "site 3, layers.1, ffn"."""
    several = len({row["stream"] for row in rows}) > 1
    return [f"{plain(row['stream'], 60) + ' ' if several else ''}site {row['index']}, {plain(shown(row['module']), 120)}, {plain(row['kind'], 60)}"
            for row in rows]
