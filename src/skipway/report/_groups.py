"""Findings as every format lists them: by severity, then place, and the same finding in many repeated blocks as one entry."""

import os
from collections.abc import Sequence
from typing import Any

from skipway.report._paths import fold, natural, pattern, shown, skeleton

SEVERITIES = ("error", "warning", "note")


def groups(found: Sequence[dict[str, Any]]) -> list[list[int]]:
    """Positions in `found`, in groups that say the same of the same line in repeated blocks; the worst first, then by place."""
    out: dict[tuple[Any, ...], list[int]] = {}
    for position in sorted(range(len(found)), key=lambda p: _order(found[p])):
        one = found[position]
        key = (one["severity"], one["code"], one["file"], one["line"], skeleton(one["where"]), skeleton(one["message"]))
        out.setdefault(key, []).append(position)
    return list(out.values())


def _order(one: dict[str, Any]) -> tuple[Any, ...]:
    place = one["file"] or ""
    return SEVERITIES.index(one["severity"]), place, one["line"] or 0, natural(one["where"]), one["code"], one["message"]


def place(one: dict[str, Any]) -> str:
    """`file:line`, or the module where no line is known."""
    return f"{near(one['file'])}:{one['line']}" if one["file"] else shown(one["where"])


def places(wheres: Sequence[str]) -> str:
    """Where all findings of a group are: `layers.{1-11}.attn`."""
    return "; ".join(pattern([wheres[i] for i in part]) for part in fold(wheres))


def near(file: str) -> str:
    """The path from the current folder, where the file is inside it."""
    here = os.getcwd().rstrip(os.sep) + os.sep
    return file.removeprefix(here)


def verdict(found: Sequence[dict[str, Any]]) -> str:
    """"2 errors, 1 note", or "no findings"."""
    numbers = {s: sum(f["severity"] == s for f in found) for s in SEVERITIES}
    return ", ".join(plural(n, s) for s, n in numbers.items() if n) or "no findings"


def totals(report: dict[str, Any]) -> str:
    """One line: findings by severity, sites and streams, rules that ran, and what was suppressed."""
    streams = [s for s in report["wiring"]["streams"] if s["main"]]
    parts = [verdict(report["findings"]), f"{plural(sum(len(s['sites']) for s in streams), 'site')} on {plural(len(streams), 'stream')}"]
    parts.append(f"{plural(len(report['rules_run']), 'rule')} ran (stage {report['stage']})")
    if report["suppressed"]:
        parts.append(f"{report['suppressed']} suppressed")
    return "; ".join(parts)


def count(number: int) -> str:
    """8030261248 as "8.03 B"."""
    for size, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if number >= size:
            return f"{number / size:.3g} {unit}" if number / size < 999.5 else f"{number / size:.0f} {unit}"
    return str(number)


def plural(number: int, word: str) -> str:
    """"1 site", "2 sites"."""
    return f"{number} {word}{'' if number == 1 else 's'}"
