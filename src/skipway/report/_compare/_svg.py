"""One figure as a small SVG for the page: no style of its own, no ids, every colour a class of the page's."""

from collections.abc import Sequence

from skipway.report._compare._figures import Figure, Line
from skipway.report._escape import xml
from skipway.report._probe._axes import Axis, axis
from skipway.report._probe._quantities import text

WIDTH, HEIGHT = 420.0, 240.0
LEFT, RIGHT, TOP, FOOT = 50.0, 12.0, 10.0, 40.0
TRIED = 7                           # places up to which each is named
ROW, NAMES = 24.0, 150.0            # of a forest: height of a row, width of the names


def places(figure: Figure) -> list[float]:
    """Values along x at which a line has one, in order."""
    return sorted({v.x for line in figure.lines for v in line.values})


def x_axis(figure: Figure) -> Axis:
    """The axis along the foot."""
    if figure.kind == "forest":
        return axis([x for line in figure.lines for v in line.values for x in (v.low, v.high)], False)
    found = [x for line in figure.lines for x in (*(v.x for v in line.values), *line.crosses)]
    if figure.kind == "dots" or len(set(found)) < 2:
        return axis(found, figure.x_log)
    low, high = min(found), max(found)
    if len(set(found)) <= TRIED:                                    # the rates or depths that were tried are what a reader looks for
        room = 1.15 if figure.x_log else 1.0
        return Axis(low / room, high * room, figure.x_log, tuple((x, f"{x:g}") for x in sorted(set(found))))
    made = axis(found, figure.x_log, zero=False)
    return Axis(low, high, made.log, tuple(t for t in made.ticks if low <= t[0] <= high and (figure.x_log or float(t[1]).is_integer())))


def y_axis(figure: Figure) -> Axis:
    """The axis at the left. The band of an interval may leave it; the means may not."""
    mids = [v.mid for line in figure.lines for v in line.values]
    ends = [e for line in figure.lines for v in line.values for e in (v.low, v.high)]
    if figure.section in ("rates", "cost") and mids:                 # a t interval of few seeds can be far wider than all means are apart
        room = 0.75 * (max(mids) - min(mids) or abs(mids[0]) or 1.0)
        ends = [min(max(e, min(mids) - room), max(mids) + room) for e in ends]
    return axis([*mids, *ends], figure.y_log, zero=False)


def at(scale: Axis, value: float) -> float | None:
    """Where a value stands along the foot, in the units of the picture."""
    share = scale.at(value)
    return None if share is None else round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def draw(figure: Figure) -> str:
    """The SVG, with a text that says what it shows."""
    label = xml(f"{figure.title}: {figure.said}. {_told(figure)}", 900)
    if figure.kind == "forest":
        high = TOP + ROW * len(figure.lines) + FOOT
        body = _forest(figure, high)
    else:
        high, x, y = HEIGHT, x_axis(figure), y_axis(figure)
        body = _grid(figure, x, y) + "".join(_line(figure, line, x, y) for line in reversed(figure.lines))
        body += f'<path class="cursor" d="M{LEFT} {TOP}V{HEIGHT - FOOT}" visibility="hidden"/>'
    return f'<svg class="chart" viewBox="0 0 {WIDTH:g} {high:g}" role="img" aria-label="{label}">{body}</svg>'


def _told(figure: Figure) -> str:
    if figure.kind == "forest":
        return "; ".join(f"{line.name} {text(v.mid)} ({text(v.low)} to {text(v.high)})" for line in figure.lines for v in line.values)
    return "; ".join(f"{line.name} {_ends(figure, line)}" for line in figure.lines)


def _ends(figure: Figure, line: Line) -> str:
    if not line.values:
        return "diverged"
    first, last = line.values[0], line.values[-1]
    if first is last:
        return f"{text(first.mid)} at {text(first.x)}"
    return f"from {text(first.mid)} at {figure.x_name} {text(first.x)} to {text(last.mid)} at {text(last.x)}"


def _y(scale: Axis, value: float) -> float:
    """Where a value stands; on a logarithmic axis one that is not positive stands at the foot."""
    share = scale.at(value)
    return round(TOP + (1 - (share or 0.0)) * (HEIGHT - TOP - FOOT), 1)


def _grid(figure: Figure, x: Axis, y: Axis) -> str:
    out = []
    for value, name in y.ticks:
        if y.low * (1 - 1e-9) <= value <= y.high * (1 + 1e-9) or not y.log:
            out.append(f'<path class="grid" d="M{LEFT} {_y(y, value)}H{WIDTH - RIGHT}"/>'
                       f'<text class="tick" x="{LEFT - 6}" y="{_y(y, value) + 3.5:.1f}" text-anchor="end">{name}</text>')
    out.append(_foot(x, HEIGHT, figure.x_name))
    return "".join(out)


def _foot(x: Axis, high: float, name: str) -> str:
    out = []
    for value, said in x.ticks:
        place = at(x, value)
        anchor = "end" if place is not None and place > WIDTH - RIGHT - 14 else "middle"
        out.append(f'<path class="zero" d="M{place} {high - FOOT}v4"/>'
                   f'<text class="tick" x="{place}" y="{high - FOOT + 17}" text-anchor="{anchor}">{said}</text>')
    out.append(f'<text class="tick" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{high - 5}" text-anchor="middle">{xml(name, 60)}</text>')
    return "".join(out)


def _line(figure: Figure, line: Line, x: Axis, y: Axis) -> str:
    """The band, the line and its dots; a cross at the head where seeds diverged."""
    points = [(at(x, v.x), v) for v in line.values]
    shown = [(place, v) for place, v in points if place is not None]
    out = []
    if figure.kind == "dots" or figure.section == "rates":
        bars = "".join(f"M{place} {_y(y, v.low)}V{_y(y, v.high)}" for place, v in shown)
        out.append(f'<path class="whisker" d="{bars}"/>')
    elif len(shown) > 1 and any(v.low != v.high for _, v in shown):
        upper = " ".join(f"{place} {_y(y, v.high)}" for place, v in shown)
        lower = " ".join(f"{place} {_y(y, v.low)}" for place, v in reversed(shown))
        out.append(f'<path class="band" d="M{upper} {lower}z"/>')
    if figure.kind == "line" and shown:
        out.append(f'<path class="line" d="M{" ".join(f"{place} {_y(y, v.mid)}" for place, v in shown)}"/>')
    if len(shown) <= 30:
        out += [f'<circle class="dot" cx="{place}" cy="{_y(y, v.mid)}" r="{4 if figure.kind == "dots" else 2.4}"/>' for place, v in shown]
    crosses = "".join(f"M{place - 3.5:.1f} {TOP + 2}l7 7m0 -7l-7 7" for c in line.crosses for place in [at(x, c)] if place is not None)
    if crosses:
        out.append(f'<path class="cross" d="{crosses}"/>')
    return f'<g class="v-{line.number}" data-arm="{line.number}">{"".join(out)}</g>'


def _forest(figure: Figure, high: float) -> str:
    x = x_axis(figure)
    def place(value: float) -> float:
        return round(NAMES + (x.at(value) or 0.0) * (WIDTH - NAMES - RIGHT), 1)
    out = [f'<path class="zero" d="M{place(0.0)} {TOP}V{high - FOOT}"/>']
    for value, said in _few(x.ticks):
        out.append(f'<path class="grid" d="M{place(value)} {TOP}V{high - FOOT}"/>'
                   f'<text class="tick" x="{place(value)}" y="{high - FOOT + 17}" text-anchor="middle">{said}</text>')
    for row, line in enumerate(figure.lines):
        y = TOP + ROW * (row + 0.5)
        v = line.values[0]
        out.append(f'<g class="v-{line.number}"><text class="name" x="{NAMES - 10}" y="{y + 4}" text-anchor="end">{xml(line.name, 22)}</text>'
                   f'<path class="whisker" d="M{place(v.low)} {y}H{place(v.high)}"/><circle class="dot" cx="{place(v.mid)}" cy="{y}" r="4.5"/></g>')
    out.append(f'<text class="tick" x="{(NAMES + WIDTH - RIGHT) / 2:g}" y="{high - 5}" text-anchor="middle">{xml(figure.x_name, 60)}</text>')
    return "".join(out)


def _few(ticks: Sequence[tuple[float, str]]) -> Sequence[tuple[float, str]]:
    return ticks if len(ticks) <= 5 else ticks[::2]
