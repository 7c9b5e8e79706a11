"""`[tool.skipway]` of the nearest pyproject.toml: select, ignore, expect and per-file, as defaults of the command line."""

import fnmatch
import os
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from skipway._errors import UsageError
from skipway.checks.records import Expect, Finding

_KNOWN = ("select", "ignore", "expect", "per-file")


@dataclass(frozen=True)
class Config:
    """What a project declares once. per_file: a pattern of paths, relative to the pyproject.toml, -> rules to leave out there."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    expect: dict[str, Any] = field(default_factory=dict)
    per_file: dict[str, tuple[str, ...]] = field(default_factory=dict)
    folder: str = ""


def read(start: str | os.PathLike[str] = ".") -> Config:
    """The configuration of the nearest pyproject.toml at or above `start` that has [tool.skipway]; the empty one if there is none.

    Raises UsageError naming file and field.
    """
    for folder in (Path(start).resolve(), *Path(start).resolve().parents):
        path = folder / "pyproject.toml"
        if not path.is_file():
            continue
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("skipway")
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: {error}; mend the file or run from another folder") from error
        if table is not None:
            return _config(table, path)
    return Config()


def _config(table: dict[str, Any], path: Path) -> Config:
    where = f"{path}: [tool.skipway]"
    for name in table:
        if name not in _KNOWN:
            raise UsageError(f"{where} has a field {name!r}; want {', '.join(_KNOWN)}")
    expect, per_file = table.get("expect", {}), table.get("per-file", {})
    known = [f.name for f in fields(Expect)]
    for holder, value in (("expect", expect), ("per-file", per_file)):
        if not isinstance(value, dict):
            raise UsageError(f"{where} {holder} is {value!r}; want a table")
    for name in expect:
        if name not in known:
            raise UsageError(f"{where} expect has a field {name!r}; want {', '.join(known)}")
    rules = {pattern: _strings(codes, f"{where} per-file {pattern!r}") for pattern, codes in per_file.items()}
    select, ignore = (_strings(table.get(name, []), f"{where} {name}") for name in ("select", "ignore"))
    return Config(select, ignore, expect, rules, str(path.parent))


def _strings(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise UsageError(f"{where} is {value!r}; want a list of rule codes or slugs")
    return tuple(value)


def left_out(finding: Finding, per_file: dict[str, tuple[str, ...]], folder: str) -> bool:
    """Whether a finding lies in a file whose pattern lists its code, the start of its code, or its slug."""
    if finding.file is None:
        return False
    path = os.path.relpath(finding.file, folder) if folder else finding.file
    for pattern, codes in per_file.items():
        if fnmatch.fnmatch(path, pattern) and any(finding.code.startswith(c) or finding.rule == c for c in codes):
            return True
    return False
