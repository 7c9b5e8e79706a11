"""Workflow commands that GitHub shows as annotations on the lines of a pull request: one a finding, then a line of totals."""

from collections.abc import Sequence
from typing import Any

from skipway.report._escape import plain
from skipway.report._files import inside, root
from skipway.report._groups import groups, places, totals
from skipway.report._paths import shown

COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
LONGEST = 4000              # characters of a message
BLANK = dict.fromkeys(map(ord, "\t\n\v\f\r"), " ")


def render(report: dict[str, Any], *, color: bool = False, width: int = 100) -> str:
    """One command a finding; a finding that is the same in many repeated blocks is one, for GitHub shows ten of a kind a step.

    Colour and width do not apply.
    """
    found = report["findings"]
    lines = [_command([found[position] for position in group]) for group in groups(found)]
    # A runner also reads commands of the older form `##[name]` inside a line.
    target = plain(report["target"] or report["wiring"]["model"] or "model").replace("##[", "## [")
    return "\n".join([*lines, f"skipway: {target}: {totals(report)}"]) + "\n"


def render_all(reports: Sequence[dict[str, Any]], *, color: bool = False, width: int = 100) -> str:
    """The commands and totals of each report, one after the other."""
    return "".join(render(report) for report in reports)


def _command(group: list[dict[str, Any]]) -> str:
    first = group[0]
    properties = {}
    if first["file"] is not None:
        properties["file"] = plain(inside(first["file"], root()) or first["file"], LONGEST)
        if first["line"] is not None:
            properties["line"] = str(first["line"])
    properties["title"] = plain(f"{first['code']} {first['rule']}")
    message = plain(first["message"].translate(BLANK), LONGEST)
    if len(group) > 1:
        message += f" (x{len(group)}: {plain(places([one['where'] for one in group]), LONGEST)})"
    elif first["file"] is None:
        message = f"{plain(shown(first['where']))}: {message}"
    given = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{COMMANDS[first['severity']]} {given}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
