"""Values of any kind as JSON knows them."""

import math
from typing import Any


def jsonable(value: Any) -> Any:
    """`value` with only what JSON knows: a tuple or set as a list, a number that is not finite and any other object as its text."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return [jsonable(v) for v in sorted(value, key=str)]
    return str(value)


def encodable(text: str) -> str:
    r"""JSON text that can be encoded: half of a surrogate pair, which a file name may hold, becomes its escape `\udXXX`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
