"""The table as one HTML file: the summary, a chart a quantity over depth with the wiring beside it, and all numbers. It loads nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from skipway.report._drawing.style import COLORS
from skipway.report._escape import plain
from skipway.report._groups import count
from skipway.report._page import page, strips, tables
from skipway.report._paths import shown
from skipway.report._probe._chart import KINDS, Chart, chart, kind_of, places, site_names
from skipway.report._probe._looks import lines, looks, verdict
from skipway.report._probe._quantities import measured, number, text

MOST_ROWS = 1500                # of the table and of each chart: a page that a browser can hold
DRAWN = 300_000                 # characters of the drawing
COLORED = {"self_attention": "attention", "cross_attention": "cross"}
COLUMNS = (("before", "Before"), ("after", "After"), ("branch", "Branch"), ("ratio", "Ratio"), ("cosine", "Cosine"), ("influence", "Influence"),
           ("angle", "Angle"), ("lesion", "Lesion"), ("grad_stream", "Gradient"), ("grad_branch", "Of branch"), ("identity", "Identity"),
           ("largest", "Largest"), ("channel", "Channel"), ("rank", "Rank"), ("rounded", "Rounded"), ("nonfinite", "Not finite"))


@dataclass(frozen=True)
class Said:
    """The page's answer, one of the figures under it, or a line of a stream's summary."""

    tone: str = ""
    title: str = ""
    detail: str = ""
    name: str = ""
    value: str = ""


@dataclass(frozen=True)
class Stream:
    """What is said of one stream."""

    name: str
    lines: tuple[tuple[str, str], ...]
    looks: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Figure:
    """A chart as the template reads it. told: what is said of each site, a line each."""

    id: str
    title: str
    said: str
    svg: Markup
    told: Markup
    names: tuple[str, ...]


def render(table: dict[str, Any], *, color: bool = False, width: int = 100) -> str:
    """The page. Colour and width do not apply."""
    rows = table["rows"][:MOST_ROWS]
    charts = [chart(rows, quantity) for quantity in measured(rows)] + _lanes(rows)
    report = {"wiring": table["wiring"], "findings": []}
    drawn = strips.strips(strips.pieces(report), {}, DRAWN) if table["wiring"].get("streams") else strips.Drawn((), 0)
    tone, title, detail = verdict(table)
    streams = [Stream(s["stream"], tuple(lines(s)), tuple(looks(s))) for s in table["summary"]]
    kinds = [k for k in KINDS if any(kind_of(row) == k for row in rows)]
    x, spans = places(rows)
    return page(
        "probe.html", styles=("check.css", "charts.css", "probe.css"), scripts=("slider.js", "charts.js"), extra_css=strips.style() + _kinds(),
        heading=table["model"] or "model", subject=table.get("target"), verdict=Said(tone, title, detail), facts=_facts(table), notes=table["notes"],
        sections=(("summary", "Summary", None), ("charts", "Charts", len(charts)), ("sites", "Sites", len(table["rows"]))),
        streams=streams, charts=[_figure(c) for c in charts], strips=drawn, kinds=kinds, spans=spans if len(spans) > 1 else (),
        x=Markup(" ".join(map(str, x))), names=_listed(site_names(rows)), table=_table(table, rows), several=len(streams) > 1)


def _figure(made: Chart) -> Figure:
    return Figure(made.id, made.title, made.said, Markup(made.svg), _listed(made.values), made.names)


def _listed(texts: Sequence[str]) -> Markup:
    """Texts as the value of one attribute, a line each."""
    return Markup("&#10;").join(escape(plain(one)) for one in texts)


def _facts(table: dict[str, Any]) -> list[Said]:
    first = table["summary"][0] if table["summary"] else {}
    out = [Said(name="Parameters", value=count(table["parameters"]), detail=f"{table['dtype']}, {'train' if table['training'] else 'eval'} mode"),
           Said(name="Inputs", value=table["inputs"],
                detail=f"weights: {table['weights']}" if table.get("weights") else "")]
    if number(table.get("loss")) is not None:
        out.append(Said(name="Loss", value=text(table["loss"], 4), detail=table.get("loss_name", "")))
    if number(first.get("growth")) is not None:
        out.append(Said(name="Growth", value=f"×{text(first['growth'])}", detail=f"over {first['sites']} sites"))
    if first.get("effective_depth") is not None:
        out.append(Said(name="Effective depth", value=f"{first['effective_depth']} of {first['sites']}", detail="sites carry 90 % of the influence"))
    if number(first.get("rank_correlation")) is not None:
        out.append(Said(name="Lesion", value=text(first["rank_correlation"], 2), detail="rank correlation with influence"))
    return out


def _kinds() -> str:
    """The colours of the kinds of branches, as the drawing has them."""
    pairs = {kind: COLORS[COLORED.get(kind, kind)] for kind in KINDS}
    return "".join(f".k-{kind}{{--kind:light-dark({light},{dark})}}" for kind, (light, dark) in pairs.items())


def _lanes(rows: list[dict[str, Any]]) -> list[Chart]:
    """Charts of what the lanes hold and the mixers do, for streams that have them."""
    from skipway.report._probe._quantities import Quantity
    if not any(row.get("lanes") for row in rows):
        return []
    lanes = max(len(row["lanes"].get("use", ())) for row in rows if row.get("lanes"))
    flat = [{**row, **{f"use {i}": use for i, use in enumerate((row.get("lanes") or {}).get("use", ()))},
             **{key: (row.get("lanes") or {}).get(key) for key in ("second_singular_value", "gain_from_start", "gain_to_end")}} for row in rows]
    wanted = (Quantity("lane-use", "Use of lanes", "share of the stream's mean square in each lane", tuple(f"use {i}" for i in range(lanes)),
                       tuple(f"lane {i}" for i in range(lanes))),
              Quantity("lane-second", "Second singular value", "of the mixer of each site; 1 mixes nothing", ("second_singular_value",)),
              Quantity("lane-gain", "Composite gain", "of all mixers from the start to each site, and from it to the end",
                       ("gain_from_start", "gain_to_end"), ("from start", "to end")))
    return [chart(flat, q) for q in wanted if any(number(row.get(key)) is not None for row in flat for key in q.keys)]


def _table(table: dict[str, Any], rows: list[dict[str, Any]]) -> tables.Table:
    several = len(table["summary"]) > 1
    columns = [tables.Column("site", "#", number=True), *([tables.Column("stream", "Stream", code=True)] if several else []),
               tables.Column("module", "Module", code=True), tables.Column("branch", "Branch")]
    held = [(key, title) for key, title in COLUMNS if any(row.get(key) is not None for row in rows)]
    columns += [tables.Column(key, title, number=True) for key, title in held]
    if any(row.get("lesions") for row in rows):
        columns.append(tables.Column("alone", "Lesion of each branch"))
    dead = {(s["stream"], i) for s in table["summary"] for i in s["dead"]}
    look = {(s["stream"], i) for s in table["summary"] for i, _ in s["look"]}
    out = []
    for row in rows:
        cells = {"site": str(row["index"]), "stream": row["stream"], "module": shown(row["module"]), "branch": row["kind"].replace("+", " + ")}
        if row.get("lesions"):
            cells["alone"] = ", ".join(f"{name} {text(change)}" for name, change in row["lesions"].items())
        cells |= {key: str(row[key]) if key in ("channel", "nonfinite") and row.get(key) is not None else text(row.get(key), 4) for key, _ in held}
        here = (row["stream"], row["index"])
        tone = "error" if row.get("nonfinite") else "warning" if here in dead else "note" if here in look else ""
        out.append(tables.Row({k: tables.Cell(v) for k, v in cells.items() if v}, tone))
    left = len(table["rows"]) - len(rows)
    more = f"{left} more sites are not on this page; `--format json` has them all." if left else ""
    return tables.Table("sites-table", "Sites", tuple(columns), tuple(out), more)
