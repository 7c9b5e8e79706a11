"""The drawing as the page holds it: strips under each other, of which those that fold are opened in place."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from skipway.report import svg
from skipway.report._drawing.style import COLORS
from skipway.report._page.findings import Card, Flag, flags

Piece = svg.Piece
OWN = ("paper", "ink", "quiet", "line", "error", "warning", "note")        # colours that the page has for all of its parts: check.css


@dataclass(frozen=True)
class Strip:
    """A piece of the drawing with links to its findings. opened: what takes its place; left_out: how many blocks of it are not in the page."""

    id: str
    label: str
    closed: Markup
    opened: tuple[Markup, ...]
    left_out: int
    flags: tuple[Flag, ...]


@dataclass(frozen=True)
class Drawn:
    """The drawing. left_out: how many pieces at its end are not in the page."""

    strips: tuple[Strip, ...]
    left_out: int


def pieces(report: dict[str, Any], prefix: str = "sw") -> list[Piece]:
    """The drawing's pieces from top to bottom; none where there is no stream. prefix: of their ids, another one for each drawing of a page."""
    return svg.pieces(report["wiring"], report["findings"], prefix=prefix) if report["wiring"]["streams"] else []


def ids(found: list[Piece]) -> dict[int, str]:
    """Position of a finding -> id of the first strip with its badge."""
    out: dict[int, str] = {}
    for piece in found:
        for position in piece.findings:
            out.setdefault(position, f"at-{piece.id}")
    return out


def strips(found: list[Piece], cards: Mapping[int, Card], most: int) -> Drawn:
    """What the template shows, in at most `most` characters: first every piece as it is folded, then as many opened blocks as there is room for."""
    left, kept = most, 0
    for piece in found:
        left -= len(piece.closed)
        if left < 0:
            break
        kept += 1
    out = []
    for piece in found[:kept]:
        opened: list[Markup] = []
        for block in piece.opened:
            left -= len(block)
            if left < 0:
                break
            opened.append(Markup(block))
        out.append(Strip(f"at-{piece.id}", piece.label, Markup(piece.closed), tuple(opened), len(piece.opened) - len(opened),
                         flags(piece.findings, cards)))
    return Drawn(tuple(out), len(found) - kept)


def style() -> str:
    """The drawing's style rules, with its colours for both themes."""
    colors = "".join(f"--sw-{name}:light-dark({light},{dark});" for name, (light, dark) in COLORS.items() if name not in OWN)
    return f"{svg.style(dark=False)}\n.drawing{{{colors}}}"
