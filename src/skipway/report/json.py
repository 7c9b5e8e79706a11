"""The report's dictionary (schema "skipway.report/1") as JSON with a stable order of keys."""

import json
from typing import Any


def render(report: dict[str, Any], *, color: bool = False, width: int = 100) -> str:
    """JSON with two spaces of indentation; values that JSON does not know are written as text. Colour and width do not apply."""
    return json.dumps(report, indent=2, sort_keys=False, default=str, ensure_ascii=False) + "\n"
