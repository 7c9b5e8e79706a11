"""Tables as plain values, and the table of sites."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skipway.report._groups import SEVERITIES
from skipway.report._page import nearby, short
from skipway.report._page.findings import Card
from skipway.report._paths import shown


@dataclass(frozen=True)
class Column:
    """key: its name in copies of the table. number: aligned and sorted as one. code: set in the type of source."""

    key: str
    title: str
    number: bool = False
    code: bool = False


@dataclass(frozen=True)
class Cell:
    """Text, or links of (id of an element, text)."""

    text: str = ""
    links: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Row:
    """Cells by the key of their column; a missing one is empty. tone: a severity, or ""."""

    cells: Mapping[str, Cell]
    tone: str = ""

    def pairs(self, columns: Sequence[Column]) -> Iterator[tuple[Column, Cell]]:
        """Each column with its cell."""
        return ((column, self.cells.get(column.key, Cell())) for column in columns)


@dataclass(frozen=True)
class Table:
    """A table for the macro `data_table`."""

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    left_out: str = ""


COLUMNS = (
    Column("site", "#", number=True), Column("stream", "Stream", code=True), Column("layer", "Layer", number=True),
    Column("module", "Module", code=True), Column("branch", "Branch"), Column("computed_by", "Computed by", code=True),
    Column("placement", "Placement"), Column("norm", "Norm"), Column("shortcut", "Shortcut"), Column("gain", "Gain", number=True),
    Column("scale", "Scale"), Column("also", "Also"), Column("findings", "Findings"), Column("source", "Source", code=True),
)
OPTIONAL = {"norm", "scale", "also", "findings"}     # left out where no row has anything in them


def sites(report: dict[str, Any], cards: Mapping[int, Card], most: int) -> Table:
    """One row a site, main streams first, in order of use, up to `most`. cards: position of a finding -> its card."""
    streams = report["wiring"]["streams"]
    at = _finder(report["findings"], cards)
    everything = [(stream, site) for stream in streams for site in stream["sites"]]
    kept = tuple(_row(stream, site, at(site)) for stream, site in everything[:most])
    empty = {key for key in OPTIONAL if not any(key in row.cells for row in kept)} | ({"stream"} if len(streams) < 2 else set())
    columns = tuple(c for c in COLUMNS if c.key not in empty)
    left = len(everything) - len(kept)
    more = f"{left} more sites are not in this table; `--format json` has them all." if left else ""
    return Table("sites-table", "Sites", columns, kept, more)


def _row(stream: dict[str, Any], site: dict[str, Any], found: list[Card]) -> Row:
    gain = "varies" if site["gain"] is None else f"{site['gain']:.4g}"
    scale = site["scale"]
    if scale == "constant" and site["branch_scale"] is not None:
        scale = f"{site['branch_scale']:.4g}"
    also = [word for word, on in (("parallel", site["parallel"]), ("in place", site["in_place"])) if on]
    source = f"{nearby(site['file'])}:{site['line']}" if site["file"] else ""
    texts = {
        "site": str(site["index"]), "layer": str(site["layer"]), "stream": stream["name"] + ("" if stream["main"] else " (side)"),
        "module": shown(site["module"]), "branch": " + ".join(branch["kind"] for branch in site["branches"]) or "other",
        "computed_by": _computed_by(site), "placement": site["placement"], "norm": site["norm"] or "", "shortcut": site["shortcut"], "gain": gain,
        "scale": "" if scale == "none" else scale, "also": ", ".join(also), "source": source,
    }
    cells = {key: Cell(text) for key, text in texts.items() if text}
    if found:
        cells["findings"] = Cell(links=tuple((card.id, short(card.code, 12)) for card in found))
    return Row(cells, min((card.severity for card in found), key=SEVERITIES.index, default=""))


def _computed_by(site: dict[str, Any]) -> str:
    """The outermost modules of the branches, from the site's own module on: "attn", "conv1 conv2 +1"."""
    outer: list[str] = []
    for branch in site["branches"]:
        for path in branch["modules"]:
            if not any(path.startswith(f"{other}.") for other in outer):
                outer.append(path)
    inside = f"{site['module']}." if site["module"] else ""
    names = [path.removeprefix(inside) for path in outer]
    return " ".join(short(name, 40) for name in names[:3]) + (f" +{len(names) - 3}" if len(names) > 3 else "")


@dataclass
class _Places:
    """Findings by what they name: a module, or a line inside a block."""

    modules: dict[str, list[Card]] = field(default_factory=dict)
    lines: dict[tuple[str, int], list[tuple[str, Card]]] = field(default_factory=dict)

    def __call__(self, site: dict[str, Any]) -> list[Card]:
        """The cards of the findings about a site, each once."""
        own = [path for branch in site["branches"] for path in branch["modules"]] + site["norm_modules"]
        found = [card for path in own for card in self.modules.get(path, ())]
        inside = f"{site['module']}." if site["module"] else ""
        for where, card in self.lines.get((site["file"] or "", site["line"] or 0), ()):
            if where == site["module"] or where.startswith(inside):
                found.append(card)
        return list({card.id: card for card in found}.values())


def _finder(found: Sequence[dict[str, Any]], cards: Mapping[int, Card]) -> _Places:
    places = _Places()
    for position, one in enumerate(found):
        if position not in cards:
            continue
        places.modules.setdefault(one["where"], []).append(cards[position])
        if one["file"] and one["line"]:
            places.lines.setdefault((one["file"], one["line"]), []).append((one["where"], cards[position]))
    return places
