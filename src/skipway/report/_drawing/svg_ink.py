"""Pieces of SVG text: marks, boxes, badges, lines. Positions are whole or half pixels; everything that is shown is escaped."""

from collections.abc import Sequence

from skipway.report._drawing.measure import fitted
from skipway.report._drawing.parts import Badge, Mark
from skipway.report._drawing.svg_plan import BADGE, LANE, LANES, MARK, mark_width, shown
from skipway.report._escape import xml


def num(value: float) -> str:
    """A number as short as it can be written."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def text(x: float, y: float, content: str, classes: str) -> str:
    return f'<text class="{classes}" x="{num(x)}" y="{num(y)}">{xml(content)}</text>'


def titled(title: str, content: str) -> str:
    """A group with a tooltip."""
    return f"<g><title>{xml(title)}</title>{content}</g>" if title else content


def path(classes: str, d: str) -> str:
    return f'<path class="{classes}" d="{d}"/>'


def rect(classes: str, x: float, y: float, w: float, h: float, r: float) -> str:
    kind, round_ = f' class="{classes}"' if classes else "", f' rx="{num(r)}"' if r else ""
    return f'<rect{kind} x="{num(x)}" y="{num(y)}" width="{num(w)}" height="{num(h)}"{round_}/>'


def severity(badges: Sequence[Badge]) -> str:
    """The class that outlines what a finding speaks of; "" where there is none."""
    return f" sw-at-{badges[0].severity}" if badges and badges[0].severity in ("error", "warning", "note") else ""


def mark(one: Mark, x: float, y: float) -> str:
    """A mark whose left edge is at x and whose middle at y."""
    wide = mark_width(one)
    shape = "sw-norm" if one.kind == "norm" else "sw-mark sw-drop" if one.kind == "drop" else "sw-mark"
    body = rect(shape + severity(one.badges), x + 0.5, y - MARK / 2 + 0.5, wide - 1, MARK - 1, 9.5 if one.kind != "shortcut" else 3)
    return titled(one.title, body + text(x + wide / 2, y + 3.5, shown(one), "sw-text sw-small sw-mid"))


def badges(found: Sequence[Badge], x: float, y: float, room: int = 3) -> str:
    """Badges under each other, the first one's middle at y."""
    out = []
    for k, badge in enumerate(found[:room]):
        top = y - 9 + 22 * k
        tone = badge.severity if badge.severity in ("error", "warning", "note") else "note"
        more = f" +{len(found) - room}" if k == room - 1 and len(found) > room else ""
        out.append(f'<g class="sw-badge sw-{tone}" data-finding="{badge.numbers[0] if badge.numbers else -1}"><title>{xml(badge.text, 1200)}</title>'
                   + rect("", x, top, BADGE, 18, 9)
                   + text(x + BADGE / 2, top + 12.5, fitted(badge.code + more, 11, BADGE - 4), "sw-tag-text") + "</g>")
    return "".join(out)


def tip(x: float, y: float, direction: str) -> str:
    """An arrowhead that ends at (x, y)."""
    d = {"right": "l-7-3.5v7z", "left": "l7-3.5v7z", "down": "l-3.5-7h7z"}[direction]
    return path("sw-tip", f"M{num(x)} {num(y)}{d}")


def lane_offsets(lanes: int) -> list[float]:
    """Where the lines of a stream are, beside its middle."""
    count = min(lanes, LANES)
    return [LANE * (k - (count - 1) / 2) for k in range(count)]


def stream(x: float, top: float, bottom: float, lanes: int, halo: bool = False) -> str:
    """A stream's line, or its lanes; halo: what it crosses is interrupted."""
    kind = "sw-stream" if lanes == 1 else "sw-stream sw-lane"
    d = "".join(f"M{num(x + o)} {num(top)}V{num(bottom)}" for o in lane_offsets(lanes))
    return (path("sw-halo", d) if halo else "") + path(kind, d)


def join(x: float, y: float, lanes: int, classes: str, symbol: str = "add") -> str:
    """The mark where things meet on a stream."""
    half = 8 + LANE * (min(lanes, LANES) - 1) / 2
    shape = rect(f"sw-join{classes}", x - half, y - 8, 2 * half, 16, 8 if symbol == "add" else 3)
    inside = "h8m-4-4v8" if symbol == "add" else "m1-3.5v7m6-7v7"
    return shape + path(f"sw-join{classes}", f"M{num(x - 4)} {num(y)}{inside}")


def tap(x: float, y: float, lanes: int) -> str:
    """Where a branch reads a stream."""
    half = 3 + LANE * (min(lanes, LANES) - 1) / 2
    return rect("sw-dot", x - half, y - 3, 2 * half, 6, 3)
