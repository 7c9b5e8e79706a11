"""A table of a probe, read back from its JSON: held to its fields, so that a format may read them without asking again."""

import re
from typing import Any

from skipway._errors import UsageError
from skipway.report._load import as_report

SCHEMA, VERSION = "skipway.probe", 1
NUMBER = (int, float, str, type(None))          # a number that is not finite is a text
TEXT, MAYBE, WHOLE = (str,), (str, type(None)), (int,)
# Field -> the types it may have, and what stands in where the file has none; no value there: the field must be.
ROW: dict[str, tuple[Any, ...]] = {
    "stream": (TEXT,), "index": (WHOLE,), "layer": (WHOLE,), "module": (TEXT,), "kind": (TEXT,), "placement": (TEXT,), "file": (MAYBE, None),
    "line": ((int, type(None)), None), "channel": ((int, type(None)), None), "lanes": ((dict, type(None)), None),
    "lesions": ((dict, type(None)), None)}
NUMBERS = ("before", "after", "branch", "ratio", "cosine", "influence", "angle", "rounded", "largest", "rank", "nonfinite", "grad_stream",
           "grad_branch", "identity", "lesion")
SUMMARY: dict[str, tuple[Any, ...]] = {
    "stream": (TEXT,), "sites": (WHOLE,), "verdict": (MAYBE, None), "effective_depth": ((int, type(None)), None), "dead": ((list,), []),
    "look": ((list,), [])}
FIGURES = ("growth", "exponent", "fit", "gradient", "rank_correlation", "stem_identity")
TABLE: dict[str, tuple[Any, ...]] = {
    "rows": ((list,),), "summary": ((list,),), "model": (TEXT,), "parameters": (WHOLE,), "dtype": (TEXT,), "training": ((bool,),),
    "inputs": (TEXT,), "loss": (NUMBER, None), "notes": ((list,), []), "target": (MAYBE, None), "wiring": ((dict,), {}), "weights": (TEXT, ""),
    "loss_name": (TEXT, "")}
ANEW = "write the file anew with `skipway probe TARGET --format json`"


def is_table(data: Any) -> bool:
    """Whether a decoded JSON value says that it is a table of a probe, of whatever version."""
    return isinstance(data, dict) and isinstance(data.get("schema"), str) and data["schema"].startswith(f"{SCHEMA}/")


def table_of(data: dict[str, Any], where: str) -> dict[str, Any]:
    """The table, with every field of its schema. Raises UsageError, one line that starts with `where`."""
    if not re.fullmatch(rf"{re.escape(SCHEMA)}/{VERSION}", data["schema"]):
        raise UsageError(f"{where}: its schema is {data['schema'][:60]!r}, this version reads {SCHEMA}/{VERSION}; {ANEW}")
    table = _held(data, TABLE, where, "")
    table["rows"] = [_held(row, ROW, where, f"rows[{i}]", NUMBERS) for i, row in enumerate(table["rows"])]
    table["summary"] = [_held(s, SUMMARY, where, f"summary[{i}]", FIGURES) for i, s in enumerate(table["summary"])]
    for i, summary in enumerate(table["summary"]):
        fine = all(isinstance(n, int) for n in summary["dead"]) and all(
            isinstance(one, list) and len(one) == 2 and isinstance(one[0], int) and isinstance(one[1], str) for one in summary["look"])
        if not fine:
            raise UsageError(f"{where}: summary[{i}]: dead and look want site numbers and texts; {ANEW}")
    if not all(isinstance(note, str) for note in table["notes"]):
        raise UsageError(f"{where}: notes want texts only; {ANEW}")
    if table["wiring"]:
        table["wiring"] = as_report(table["wiring"], f"{where}: wiring")["wiring"]
    return table


def _held(item: Any, want: dict[str, tuple[Any, ...]], where: str, name: str, numbers: tuple[str, ...] = ()) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise UsageError(f"{where}: {name or 'the table'} is {_short(item)}, want an object; {ANEW}")
    out = dict(item)
    for field, (kinds, *default) in {**want, **dict.fromkeys(numbers, (NUMBER, None))}.items():
        at = f"{name}.{field}" if name else field
        if field not in out:
            if not default:
                raise UsageError(f"{where}: there is no {at}; {ANEW}")
            out[field] = default[0].copy() if isinstance(default[0], (list, dict)) else default[0]
        value = out[field]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise UsageError(f"{where}: {at} is {_short(value)}, want {' or '.join(k.__name__ for k in kinds)}; {ANEW}")
        if field in numbers and isinstance(value, str) and value not in ("nan", "inf", "-inf"):
            raise UsageError(f"{where}: {at} is {_short(value)}, want a number; {ANEW}")
    return out


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
