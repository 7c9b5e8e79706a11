"""Option texts as values: `--expect placement=pre`, `--entry-point decode=file.py:inputs`, `--select SKW1,SKW201`."""

from collections.abc import Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from skipway._errors import UsageError


def listed(texts: Sequence[str]) -> tuple[str, ...]:
    """Repeated and comma-separated values as one tuple."""
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())


def expectation(texts: Sequence[str], declared: dict[str, Any] | None = None) -> Any:
    """An `Expect` of "key=value" texts on top of `declared`. Raises UsageError where a key is no field or a value has another type."""
    from skipway.checks.records import Expect
    kinds = {f.name: str(f.type) for f in fields(Expect)}
    values: dict[str, Any] = dict(declared or {})
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or key not in kinds:
            near = get_close_matches(key, kinds, n=1)
            hint = f"; did you mean {near[0]}" if near else ""
            raise UsageError(f"--expect {text!r}: want KEY=VALUE with one of {', '.join(kinds)}{hint}")
        values[key] = _typed(value, kinds[key], text)
    try:
        return Expect(**values)
    except ValueError as error:
        raise UsageError(f"--expect: {error}") from error


def _typed(value: str, kind: str, text: str) -> Any:
    if "bool" in kind:
        if value.lower() not in ("true", "false"):
            raise UsageError(f"--expect {text!r}: got {value!r}, want true or false")
        return value.lower() == "true"
    if "float" in kind:
        try:
            return float(value)
        except ValueError:
            if "str" in kind:
                return value
            raise UsageError(f"--expect {text!r}: got {value!r}, want a number") from None
    return value


def entry_points(texts: Sequence[str]) -> dict[str, tuple[Any, ...]] | None:
    """{name: arguments} of "name=file.py:function" texts, or None where there are none."""
    from skipway.targets import given_inputs
    out: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, equals, source = (part.strip() for part in text.partition("="))
        if not equals or not name or not source:
            raise UsageError(f"--entry-point {text!r}: want NAME=FILE.py:FUNCTION, where the function returns the arguments of that method")
        given = given_inputs((), source)
        if given is None or given.kwargs:
            raise UsageError(f"--entry-point {text!r}: the function returned keyword arguments, want a tuple of positional ones")
        out[name] = given.args
    return out or None
