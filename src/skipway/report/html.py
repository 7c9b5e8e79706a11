"""The report as one HTML file: the verdict, the drawing, findings with their source, and the table of sites. It loads nothing."""

from dataclasses import dataclass
from typing import Any

from skipway._errors import UsageError
from skipway.report._groups import SEVERITIES, count, plural, verdict
from skipway.report._page import findings, page, strips, tables

HOW = {"abstract": ("from shapes", "no numbers were computed"), "real": ("from one forward", "with real numbers")}


@dataclass(frozen=True)
class Verdict:
    """The page's answer. tone: a severity, or "fine"."""

    tone: str
    title: str
    detail: str


@dataclass(frozen=True)
class Fact:
    """One of the figures under the verdict."""

    name: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Detail:
    """How much of a report one page shows; all that is left out is counted on the page."""

    cards: int                  # findings with a card of their own
    quoted: int                 # cards that quote their source
    lines: int                  # further findings, a line each
    rows: int                   # rows of the table of sites
    drawn: int                  # characters of the drawing
    text: int                   # characters of a message


DETAILS = (Detail(300, 250, 700, 1200, 400_000, 1500), Detail(200, 120, 400, 600, 250_000, 800), Detail(100, 40, 150, 200, 120_000, 300),
           Detail(20, 5, 20, 20, 60_000, 150))
LARGEST = 1_000_000             # bytes of a page


def render(report: dict[str, Any], *, color: bool = False, width: int = 100) -> str:
    """The report as a page under 1 MB. Source is read from the files that the findings name; colour and width do not apply.

    Raises UsageError where a report has so much in it that not even its outline fits.
    """
    size, pieces = 0, strips.pieces(report)
    for detail in DETAILS:
        text = _render(report, detail, pieces)
        size = len(text.encode())
        if size < LARGEST:
            return text
    raise UsageError(f"--format html: the page would have {size / 1e6:.1f} MB, want at most {LARGEST / 1e6:.0f} MB; take --format json")


def _render(report: dict[str, Any], detail: Detail, pieces: list[strips.Piece]) -> str:
    found = findings.shown(report, strips.ids(pieces), detail.cards, detail.quoted, detail.lines)
    cards = findings.by_position((*found.cards, *found.lines))
    table = tables.sites(report, cards, detail.rows)
    drawn = strips.strips(pieces, cards, detail.drawn)
    sections = (("drawing", "Drawing", None), ("findings", "Findings", len(found.cards) + len(found.lines)), ("sites", "Sites", len(table.rows)),
                ("rules", "Rules", None))
    return page(
        "check.html", styles=("check.css",), extra_css=strips.style(),
        heading=report["wiring"]["model"] or "model", subject=report["target"], verdict=_verdict(report), facts=_facts(report),
        notes=report["wiring"]["notes"], sections=sections, findings=found, strips=drawn, table=table, rules=_rules(report),
        stage=report["stage"], fail_on=report.get("fail_on"), limit=detail.text,
    )


def _verdict(report: dict[str, Any]) -> Verdict:
    found = report["findings"]
    tone = next((s for s in SEVERITIES if any(f["severity"] == s for f in found)), "fine")
    title = verdict(found)
    details = []
    if report["suppressed"]:
        details.append(f"{report['suppressed']} suppressed")
    if not any(s["main"] for s in report["wiring"]["streams"]):
        tone = "note" if tone == "fine" else tone
        details.append("no residual stream was found")
    return Verdict(tone, title[:1].upper() + title[1:], "; ".join(details))


def _facts(report: dict[str, Any]) -> list[Fact]:
    wiring = report["wiring"]
    streams = [s for s in wiring["streams"] if s["main"]]
    how, detail = HOW.get(wiring["how"], (wiring["how"], ""))
    number = f"{wiring['parameters']:,}" if wiring["parameters"] >= 1000 else ""
    lanes = max((s["lanes"] for s in streams), default=1)
    out = [Fact("Parameters", count(wiring["parameters"]), number),
           Fact("Sites", str(sum(len(s["sites"]) for s in streams)), f"on {plural(len(streams), 'stream')}"),
           Fact("Recovered", how, detail),
           Fact("Rules", str(len(report["rules_run"])), f"stage {report['stage']}")]
    if lanes > 1:
        out.insert(2, Fact("Lanes", str(lanes)))
    return out


def _rules(report: dict[str, Any]) -> list[tuple[str, str, str, int]]:
    """(code, name, summary, number of findings) of every rule that ran."""
    said = report.get("rules", {})
    slugs = {f["code"]: f["rule"] for f in report["findings"]}
    out = []
    for code in report["rules_run"]:
        own = said.get(code, {})
        number = sum(f["code"] == code for f in report["findings"])
        out.append((code, own.get("rule", slugs.get(code, "")), own.get("summary", ""), number))
    return out
