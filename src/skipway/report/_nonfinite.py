"""What makes NaN and infinity, for people and programs. Plain records only."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from skipway.report._escape import plain
from skipway.report._groups import near, plural
from skipway.report._paths import fold, pattern, shown
from skipway.report._values import encodable, jsonable

SCHEMA = "skipway.nonfinite/1"
ERROR, BOLD = "31", "1"


def record(found: Any, target: str, model: str, inputs: str, notes: Sequence[str]) -> dict[str, Any]:
    """The plain dictionary of a `NonFinite` and of what it was looked for in."""
    return {"schema": SCHEMA, "target": target, "model": model, "inputs": inputs, "finite": not found.origins,
            "origins": [asdict(origin) for origin in found.origins], "passed_on": list(found.passed_on), "notes": list(notes)}


def to_json(said: dict[str, Any]) -> str:
    """JSON with two spaces of indentation."""
    return encodable(json.dumps(jsonable(said), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def to_text(said: dict[str, Any], *, color: bool = False, width: int = 100) -> str:
    """The producers, one a line like a compiler's; then the modules that only pass it on, folded where they repeat."""
    def paint(text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if color else text

    name = plain(said["model"])
    out = [f"{paint(name, BOLD)}  [{plain(said['target'])}]  inputs {plain(said['inputs'])}", ""]
    for origin in said["origins"]:
        place = f"{near(origin['file'])}:{origin['line']}" if origin["file"] else shown(origin["module"])
        made = f"`{origin['operation']}` in {shown(origin['module'])} ({origin['part']}) makes {origin['what']} of finite values"
        sentence = plain(f"{place}: {made}, {plural(origin['elements'], 'element')}", 2000)
        lines = textwrap.wrap(sentence, width, subsequent_indent="    ", break_on_hyphens=False)
        lines[0] = lines[0].replace(origin["what"], paint(origin["what"], ERROR), 1)
        out += lines
    if said["passed_on"]:
        paths = said["passed_on"]
        groups = [pattern([paths[i] for i in group]) for group in fold(paths)]
        listed = ", ".join(plain(shown(group), 200) for group in groups[:40]) + (f" and {len(groups) - 40} more" if len(groups) > 40 else "")
        out += textwrap.wrap(f"passed on by {listed}", width, subsequent_indent="    ", break_on_hyphens=False)
    count = len(said["origins"])
    out += [""] * (len(out) > 2) + [f"{count} {'producer' if count == 1 else 'producers'} of what is not finite" if count else "everything is finite"]
    for note in said["notes"]:
        out += textwrap.wrap(f"note: {plain(' '.join(note.split()), 2000)}", width, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(out) + "\n"
