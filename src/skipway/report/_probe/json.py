"""The table's dictionary (schema "skipway.probe/1") as JSON; the schema is docs/schema/probe.schema.json."""

import json
from typing import Any

from skipway.report._values import encodable, jsonable


def render(table: dict[str, Any], *, color: bool = False, width: int = 100) -> str:
    """JSON with two spaces of indentation. Colour and width do not apply."""
    return encodable(json.dumps(jsonable(table), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
