"""The report's dictionary (schema "skipway.report/1") as JSON with a stable order of keys; the schema is docs/schema/report.schema.json."""

import json
from collections.abc import Sequence
from typing import Any

from skipway.report._values import encodable, jsonable


def render(report: dict[str, Any], *, color: bool = False, width: int = 100) -> str:
    """JSON with two spaces of indentation; values that JSON does not know are written as text. Colour and width do not apply."""
    return _dump(report)


def render_all(reports: Sequence[dict[str, Any]], *, color: bool = False, width: int = 100) -> str:
    """A JSON list of reports."""
    return _dump(list(reports))


def _dump(value: Any) -> str:
    return encodable(json.dumps(jsonable(value), indent=2, sort_keys=False, ensure_ascii=False, allow_nan=False) + "\n")
