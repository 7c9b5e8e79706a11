"""A comparison as one HTML file: the verdicts first, then curves, rates, depth, cost, claims, drawings and every number. It loads nothing."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from skipway._errors import UsageError
from skipway.report._compare import _colors, _svg, _tables
from skipway.report._compare._figures import Figure, figures
from skipway.report._compare.text import outcome
from skipway.report._escape import plain
from skipway.report._groups import plural
from skipway.report._load import as_report
from skipway.report._page import page, strips
from skipway.report._probe._quantities import text

SCHEMA = "skipway.compare/1"
LARGEST = 2_000_000             # bytes of a page
ROWS = (3000, 1200, 300, 60)    # of a table, and with them characters of all drawings, until the page is small enough
DRAWN = (700_000, 400_000, 150_000, 40_000)
SENTENCES = 200                 # comparisons in words; the table has further ones


@dataclass(frozen=True)
class Said:
    """The page's answer, one of the figures under it, or a comparison in words."""

    tone: str = ""
    title: str = ""
    detail: str = ""
    name: str = ""
    value: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chart:
    """A figure as the template reads it. x, names: its places and what they are called; legend: (number, name, its values by place) of each arm."""

    id: str
    title: str
    said: str
    svg: Markup
    x: str
    names: Markup
    legend: tuple[tuple[int, str, Markup], ...]


@dataclass(frozen=True)
class Wiring:
    """A wiring with the names of the arms that have it, as the pieces of its drawing."""

    names: str
    pieces: list[strips.Piece]


@dataclass(frozen=True)
class Drawing:
    """A wiring as the page has room for it."""

    names: str
    strips: strips.Drawn


def render(record: dict[str, Any]) -> str:
    """The page of a record of schema "skipway.compare/1", under 2 MB. Raises UsageError for another record, or where not even an outline fits."""
    if record.get("schema") != SCHEMA:
        got = plain(str(record.get("schema")), 60)
        raise UsageError(f"report: its schema is {got}, want {SCHEMA}; write it anew with skipway compare --report DIR")
    size, made, wirings = 0, figures(record), _wirings(record)
    for rows, drawn in zip(ROWS, DRAWN, strict=True):
        found = _render(record, made, wirings, rows, drawn)
        size = len(found.encode())
        if size < LARGEST:
            return found
    raise UsageError(f"report.html: the page would have {size / 1e6:.1f} MB, want at most {LARGEST / 1e6:.0f} MB; read report.json and curves.csv")


def _render(record: dict[str, Any], made: list[Figure], wirings: list[Wiring], rows: int, drawn: int) -> str:
    charts = {name: [_chart(f) for f in _tables.shown(made, name)] for name in ("verdicts", "curves", "rates", "depth", "cost")}
    found = {make.__name__: make(record, rows) for make in _tables.ALL}
    drawings = [Drawing(w.names, strips.strips(w.pieces, {}, drawn // len(wirings))) for w in wirings]
    claim = [("preset", "Claim", len(record["claim"]["checks"]))] if record.get("claim") else []
    sections = [("verdicts", "Verdicts", len(record["comparisons"])), *claim, ("curves", "Curves", None), ("rates", "Rates", None),
                ("depth", "Depth", None), ("cost", "Cost", None), ("claims", "Claims", None), ("wirings", "Wirings", None),
                ("arms", "Variants", len(record["arms"])), ("trials", "Trials", len(record["trials"]))]
    return page(
        "compare.html", styles=("check.css", "charts.css", "compare.css"), scripts=("slider.js", "compare.js"),
        unsaid=max(0, len(record["comparisons"]) - SENTENCES), extra_css=strips.style() + _colors.style(len(record["arms"])),
        heading=f"compare {plain(_task(record), 80)}", subject=None,
        verdict=_verdict(record), claim=_claim(record), facts=_facts(record), notes=_notes(record), sections=sections, charts=charts, tables=found,
        said=[_comparison(c) for c in record["comparisons"][:SENTENCES]], claims=_tables.claims(record, rows), drawings=drawings,
        undrawn=[a["name"] for a in record["arms"] if not a["wiring"].get("streams")],
        arms=[(number, arm["name"]) for number, arm in enumerate(record["arms"])], environment=_environment(record))


def _task(record: dict[str, Any]) -> str:
    return str(record["arms"][0]["task"] if record["arms"] else record["task"]["name"])


def _verdict(record: dict[str, Any]) -> Said:
    counts = Counter(c["verdict"] for c in record["comparisons"])
    if claim := record.get("claim"):
        return Said({True: "fine", False: "warning", None: "note"}[claim["held"]], f"{claim['preset']}: {outcome(claim)}", claim["claim"])
    if not counts:
        return Said("note", "Nothing to compare", "one arm alone")
    tone = "fine" if counts["better"] else "warning" if counts["worse"] or counts["diverged"] else "note"
    if len(record["comparisons"]) == 1:
        only = record["comparisons"][0]
        return Said(tone, f"{plain(only['variant'], 60)}: {only['verdict']}", f"beside {plain(only['baseline'], 60)}")
    title = ", ".join(f"{n} {word}" for word in ("better", "worse", "diverged", "no difference shown") if (n := counts[word]))
    bases = list(dict.fromkeys(c["baseline"] for c in record["comparisons"]))
    return Said(tone, title, f"beside {plain(bases[0], 60)}" if len(bases) == 1 else f"beside the baselines of {len(bases)} groups")


def _claim(record: dict[str, Any]) -> Said | None:
    """A preset's claim under the verdicts."""
    claim = record.get("claim")
    return Said({True: "fine", False: "warning", None: "note"}[claim["held"]], outcome(claim), claim["claim"], claim["source"]) if claim else None


def _comparison(c: dict[str, Any]) -> Said:
    return Said(_tables.TONES.get(c["verdict"], "note"), c["verdict"], c["sentence"], c["variant"], c["baseline"], tuple(c["notes"]))


def _facts(record: dict[str, Any]) -> list[Said]:
    states = Counter(t["state"] for t in record["trials"])
    seeds = sorted({t["seed"] for t in record["trials"]})
    rates = sorted({t["lr"] for t in record["trials"]})
    steps = sorted({a["steps"] for a in record["arms"]})
    wall = sum(t.get("wall") or 0.0 for t in record["trials"])
    ended = ", ".join(f"{n} {state}" for state in ("diverged", "failed", "waiting", "running") if (n := states[state]))
    out = [Said(name="Variants", value=str(len(record["arms"])), detail=f"in {plural(len({a['group'] for a in record['arms']}), 'group')}"),
           Said(name="Trials", value=str(len(record["trials"])), detail=ended or "all finished"),
           Said(name="Seeds", value=str(len(seeds)), detail="paired: same data, same start"),
           Said(name="Learning rates", value=str(len(rates)), detail=", ".join(f"{r:g}" for r in rates[:6]) + (", ..." if len(rates) > 6 else "")),
           Said(name="Steps", value=" to ".join(f"{s:,}" for s in dict.fromkeys((steps[0], steps[-1]))) if steps else ""),
           Said(name="False verdicts", value=f"at most {100 * record['design']['alpha']:g} %",
                detail="over all variants" + (" and looks" if record["design"]["last"] > record["design"]["first"] else ""))]
    chance = record["task"].get("chance")
    if chance is not None:
        out.append(Said(name="Blind guess", value=f"loss {text(chance, 4)}", detail=f"learned: at most {text(record['threshold'], 4)}"))
    if wall:
        out.append(Said(name="Time of all trials", value=f"{wall:,.0f} s" if wall < 600 else f"{wall / 60:,.0f} min"))
    return out


def _notes(record: dict[str, Any]) -> list[str]:
    notes = [] if record["complete"] else ["The study is not complete: some trials have not ended, and verdicts may change."]
    notes += [f"{a['name']}: {note}" for a in record["arms"] for note in a["notes"]]
    failed = [t for t in record["trials"] if t["state"] == "failed"]
    return notes + [f"{t['arm']} at {t['lr']:g}, seed {t['seed']} failed: {t['reason']}" for t in failed[:8]]


def _environment(record: dict[str, Any]) -> list[tuple[str, str]]:
    def shown(value: Any) -> str:
        return ", ".join(f"{k} {shown(v)}" for k, v in value.items()) if isinstance(value, dict) else "" if value is None else str(value)
    return [(key, shown(value)) for key, value in (*record["environment"].items(), *record["study"].items()) if shown(value)]


def _chart(figure: Figure) -> Chart:
    marks = _svg.places(figure) if figure.kind == "line" else []
    scale = _svg.x_axis(figure)
    shown = [(x, place) for x in marks if (place := _svg.at(scale, x)) is not None]
    legend = []
    for line in figure.lines:
        known = {v.x: v.mid for v in line.values}
        legend.append((line.number, line.name, _listed([text(known.get(x), 4) for x, _ in shown])))
    return Chart(figure.id, figure.title, figure.said, Markup(_svg.draw(figure)), " ".join(f"{place:g}" for _, place in shown),
                 _listed([f"{figure.x_name} {x:g}" if figure.x_log else f"{figure.x_name} {x}" for x, _ in shown]), tuple(legend))


def _listed(texts: Sequence[str]) -> Markup:
    """Texts as the value of one attribute, a line each."""
    return Markup("&#10;").join(escape(plain(one)) for one in texts)


def _wirings(record: dict[str, Any]) -> list[Wiring]:
    """One of each: arms that are wired alike share it."""
    shared: dict[str, list[dict[str, Any]]] = {}
    for arm in record["arms"]:
        if arm["wiring"].get("streams"):
            shared.setdefault(json.dumps(arm["wiring"]["streams"], sort_keys=True), []).append(arm)
    out = []
    for number, members in enumerate(shared.values()):
        report = as_report(members[0]["wiring"], f"arm {plain(members[0]['name'], 80)}: wiring")
        out.append(Wiring(", ".join(m["name"] for m in members), strips.pieces(report, f"sw{number}")))
    return out
