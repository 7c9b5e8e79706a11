"""The drawing of a wiring as SVG: streams as straight lines, branches hanging off them, findings where they are.

Contract for pages that hold the drawing (all of it takes plain dictionaries: `wiring` as of `Wiring.to_dict()`, `findings` as the
list in `Report.to_dict()`):

* `drawing(wiring, findings, open=...)` is one `<svg class="sw-drawing" role="img" ...>` fragment without an XML head and without style.
  `open` is "none" (default), "all", or a set of fold ids: which folded repeats are shown block by block.
* `folds(wiring, findings)` lists `(id, label)` of every folded repeat, from top to bottom.
* `pieces(wiring, findings)` is the same drawing cut into horizontal pieces from top to bottom, each an `<svg>` of its own, all of one width, so that
  they stand seamlessly under each other with no gap (`display: block`). A `Piece` with `opened` is a folded repeat: `closed` is
  the one block with its count, `opened` is what takes its place, one `<svg>` a block. Put it in `<details>`: `closed` in `<summary>`,
  `opened` after it, with `closed` hidden by CSS while the element is open. No script and no new layout are needed.
* `style(dark=True)` is the style sheet that all of these need, once a page: every class starts with `sw-`, every colour is a custom
  property with a fallback. The page may set them: --sw-paper, --sw-ink, --sw-quiet (captions), --sw-line (frames), --sw-stream,
  --sw-branch, --sw-box, --sw-norm, --sw-error, --sw-warning, --sw-note, and for the kinds of branches --sw-attention, --sw-cross, --sw-ffn,
  --sw-moe, --sw-conv, --sw-ssm, --sw-other.
* Every finding whose place is in the drawing has a badge `<g class="sw-badge sw-error" data-finding="N">`, N its position in `findings`
  (where one badge speaks for many findings: the first of them), with the whole text in its `<title>`; `Piece.findings` lists all of
  them. A finding that has no place in the drawing is in no piece.
* Ids start with `prefix` (default "sw"): those of pieces and folds, and in a `drawing` those of what is there several times (pieces hold no
  element with an id). Give another one to a second drawing on the same page.
* All names and messages are escaped (`skipway.report._escape`).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from skipway.report._drawing import svg_bands, svg_page
from skipway.report._drawing.layout import layout, opened
from skipway.report._drawing.parts import Band, End, Joint, Run, Stem
from skipway.report._drawing.style import style as style
from skipway.report._drawing.svg_plan import plan


@dataclass(frozen=True)
class Piece:
    """A horizontal strip of the drawing."""

    id: str                             # [a-z0-9-]+, unique in the drawing
    label: str                          # what it shows, unescaped: "x32 model.layers.{0-31}"
    closed: str                         # an <svg>
    opened: tuple[str, ...] = ()        # <svg>s that take its place, one a block; empty where there is nothing to open
    findings: tuple[int, ...] = ()      # positions in `findings` whose badge is in it


def pieces(wiring: dict[str, Any], findings: Sequence[dict[str, Any]] = (), *, prefix: str = "sw") -> list[Piece]:
    """The drawing as strips from top to bottom; see the module's docstring."""
    made = layout(wiring, findings)
    shared = plan(made)
    out = []
    for number, band in enumerate(made.bands):
        strip = svg_bands.draw(band, shared, True)
        if not strip.height:
            continue
        inside = tuple(svg_page.fragment(one.all, shared.width, one.height, "") for b in _opened(band) for one in [svg_bands.draw(b, shared)])
        label = _label(band)
        out.append(Piece(f"{prefix}-p{number}", label, svg_page.fragment(strip.all, shared.width, strip.height, label), inside, _findings(band)))
    return out


def folds(wiring: dict[str, Any], findings: Sequence[dict[str, Any]] = (), *, prefix: str = "sw") -> list[tuple[str, str]]:
    """(id, label) of every folded repeat, from top to bottom."""
    return [(f"{prefix}-{band.body.fold}", _label(band)) for band in layout(wiring, findings).bands if _opened(band) and isinstance(band.body, Run)]


def drawing(
    wiring: dict[str, Any], findings: Sequence[dict[str, Any]] = (), *, open: str | Collection[str] = "none", only: str | None = None,
    title: str = "", legend: bool = True, prefix: str = "sw",
) -> str:
    """The whole drawing as one <svg> fragment; see the module's docstring.

    only: the name of the one main stream to draw. title: a heading. legend: the findings as text below the drawing.
    Raises UsageError where `only` names no main stream.
    """
    wanted = open if isinstance(open, str) else {one.removeprefix(f"{prefix}-") for one in open}
    return svg_page.whole(layout(wiring, findings, wanted, only), title, legend, prefix)


def render(report: dict[str, Any], *, color: bool = False, width: int = 100, open: str | Collection[str] = "none", only: str | None = None) -> str:
    """A standalone SVG file of the report's wiring and findings, in light and dark. Colour and width do not apply."""
    return svg_page.standalone(drawing(report["wiring"], report["findings"], open=open, only=only, title=svg_page.heading(report)))


def _opened(band: Band) -> list[Band]:
    return opened(band) if isinstance(band.body, Run) and band.body.count > 1 else []


def _findings(band: Band) -> tuple[int, ...]:
    body = band.body
    if isinstance(body, Run):
        return body.numbers()
    return tuple(sorted(n for b in body.badges for n in b.numbers)) if isinstance(body, (Stem, End)) else ()


def _label(band: Band) -> str:
    body = band.body
    if isinstance(body, Run):
        return (f"x{body.count} " if body.count > 1 else "") + ", ".join(label or "(model)" for label in body.labels)
    if isinstance(body, Stem):
        return f"stream {body.name}, stem {body.path or '(model)'}"
    if isinstance(body, End):
        return f"final norm {body.norm.title}" if body.norm else "end of the stream"
    return "long skips" if isinstance(body, Joint) else body.text
