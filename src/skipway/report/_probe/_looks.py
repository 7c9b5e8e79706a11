"""What a summary says, in lines for a person: the words that text, page and picture share."""

import math
import re
from collections.abc import Sequence
from typing import Any

from skipway.report._groups import plural
from skipway.report._probe._quantities import number, runs, text

NUMBER = re.compile(r"(?<!channel )(?<![\w.])-?\d[\d.,]*(?:e[+-]?\d+)?%?")


def lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """(name, sentence) of everything that was measured of one stream, what a person wants first first."""
    out: list[tuple[str, str]] = []
    sites = summary["sites"]
    if number(summary.get("growth")) is not None:
        fit = ""
        if number(summary.get("exponent")) is not None:
            fit = f"; magnitude ~ site^{text(summary['exponent'])} (R² {text(summary['fit'], 2)})"
        out.append(("growth", f"×{text(summary['growth'])} over {plural(sites, 'site')}{fit}"))
    if summary.get("verdict"):
        known = math.isfinite(number(summary["gradient"]) or 0.0)
        said = f"{summary['verdict']}: {text(summary['gradient'])} times as large after the first block as after the last"
        out.append(("gradient", said if known else f"not finite: {text(summary['gradient'])} after the first block or the last"))
    if summary.get("effective_depth") is not None:
        out.append(("effective depth", f"{summary['effective_depth']} of {plural(sites, 'site')} carry 90 % of the influence"))
    if number(summary.get("stem_identity")) is not None:
        out.append(("identity path", f"{percent(summary['stem_identity'])} of the gradient at the stream's start came down it alone"))
    if number(summary.get("rank_correlation")) is not None:
        out.append(("lesion", f"rank correlation with influence {text(summary['rank_correlation'], 2)}"))
    out.append(("dead branches", runs(summary["dead"]) if summary["dead"] else "none"))
    return out


def percent(value: Any) -> str:
    """A share as text."""
    v = number(value)
    return "" if v is None else f"{text(100 * v)} %"


def looks(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """(sites, reason) of the sites to look at; those with the same reason as one, with the largest numbers that it has."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for index, reason in summary["look"]:
        groups.setdefault(NUMBER.sub("#", reason), []).append((index, reason))
    out = []
    for group in groups.values():
        index, reason = max(group, key=lambda one: _size(one[1]))
        sites = runs([i for i, _ in group])
        out.append((f"site {sites}" if len(group) == 1 else f"sites {sites}", reason + (f" (site {index})" if len(group) > 1 else "")))
    return out


def _size(reason: str) -> float:
    return max((abs(float(n.rstrip("%,.").replace(",", ""))) for n in NUMBER.findall(reason)), default=0.0)


def heading(table: dict[str, Any]) -> str:
    """How the numbers were made: "random, seed 0", dtype, mode, loss."""
    parts = [f"inputs {table['inputs']}"]
    if table.get("weights"):
        parts.append(f"{table['weights']} weights" if not str(table["weights"]).startswith("random") else f"random weights{table['weights'][6:]}")
    if number(table.get("loss")) is not None:
        named = f" ({table['loss_name']})" if table.get("loss_name") else ""
        parts.append(f"loss {text(table['loss'], 4)}{named}")
    return "; ".join(parts)


def verdict(table: dict[str, Any]) -> tuple[str, str, str]:
    """(tone, title, detail) of the whole table; tone is a severity or "fine"."""
    summaries: Sequence[dict[str, Any]] = table["summary"]
    broken = sum(bool(row.get("nonfinite")) for row in table["rows"])
    if broken:
        return "error", "Not finite", f"at {broken} of {len(table['rows'])} sites; --find-nonfinite names what makes it"
    gradients = {s["verdict"] for s in summaries if s.get("verdict")}
    dead = sum(len(s["dead"]) for s in summaries)
    looked = len({(s["stream"], i) for s in summaries for i, _ in s["look"]})
    tone = "warning" if dead or gradients - {"steady"} else "note" if looked else "fine"
    title = f"Gradient {' and '.join(sorted(gradients))}" if gradients else "Growth " + ", ".join(f"×{text(s['growth'])}" for s in summaries)
    parts = [f"{dead} dead {'branch' if dead == 1 else 'branches'}"] * bool(dead)
    parts += [f"{looked} {'site' if looked == 1 else 'sites'} to look at"] * bool(looked)
    return tone, title, "; ".join(parts) or "nothing to look at"
