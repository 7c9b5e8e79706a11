"""One row a site, with what the numbers were measured on in the last columns. Lanes are JSON texts."""

import csv
import io
import json
from typing import Any

from skipway.report._values import jsonable

MADE_OF = ("inputs", "weights", "dtype", "target")         # of the whole table, on every row
FIRST = ("stream", "index", "layer", "module", "kind", "placement", "file", "line")


def render(table: dict[str, Any], *, color: bool = False, width: int = 100) -> str:
    """Comma-separated values with a line of names; a number that was not measured is empty. Colour and width do not apply."""
    keys = list(dict.fromkeys((*FIRST, *(key for row in table["rows"] for key in row))))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*keys, *MADE_OF])
    for row in table["rows"]:
        writer.writerow([*(_cell(row.get(key)) for key in keys), *(_cell(table.get(key)) for key in MADE_OF)])
    return out.getvalue().encode("utf-8", "backslashreplace").decode("utf-8")


def _cell(value: Any) -> str:
    """A text that a spreadsheet would take for a formula is marked as text."""
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        return json.dumps(jsonable(value))
    if isinstance(value, str):
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) and value != "-inf" else value
    return repr(value)
