"""`[tool.skipway]` of the nearest pyproject.toml: targets, select, ignore, expect and per-file, as defaults of command line and fixture."""

import fnmatch
import os
import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from skipway._errors import UsageError
from skipway.checks.records import Expect, Finding, Report

_KNOWN = ("select", "ignore", "expect", "per-file", "targets")
_TARGET = ("target", "input", "inputs", "config", "expect")


@dataclass(frozen=True)
class Declared:
    """One target that the project declares, with what else the command line would be given for it."""

    target: str
    input: tuple[str, ...] = ()         # as --input, repeated
    inputs: str | None = None           # as --inputs
    config: tuple[str, ...] = ()        # as --config, repeated
    expect: dict[str, Any] = field(default_factory=dict)        # on top of the project's own


@dataclass(frozen=True)
class Config:
    """What a project declares once. per_file: a pattern of paths, relative to the pyproject.toml, -> rules to leave out there."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    expect: dict[str, Any] = field(default_factory=dict)
    per_file: dict[str, tuple[str, ...]] = field(default_factory=dict)
    folder: str = ""
    targets: tuple[Declared, ...] = ()


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
    if not isinstance(table, dict):
        raise UsageError(f"{where} is {table!r}; want a table")
    _only(table, _KNOWN, where)
    per_file, targets = table.get("per-file", {}), table.get("targets", [])
    if not isinstance(per_file, dict):
        raise UsageError(f"{where} per-file is {per_file!r}; want a table")
    if not isinstance(targets, list):
        raise UsageError(f"{where} targets is {targets!r}; want a list of targets")
    rules = {pattern: _strings(codes, f"{where} per-file {pattern!r}") for pattern, codes in per_file.items()}
    select, ignore = (_strings(table.get(name, []), f"{where} {name}") for name in ("select", "ignore"))
    declared = tuple(_target(item, f"{where} targets[{number}]") for number, item in enumerate(targets))
    return Config(select, ignore, _expect(table, where), rules, str(path.parent), declared)


def _target(item: Any, where: str) -> Declared:
    """"path/file.py:attr", or { target = "path/file.py:attr", input = [...], inputs = "...", config = [...], expect = {...} }."""
    if isinstance(item, str):
        return Declared(item)
    if not isinstance(item, dict) or not isinstance(item.get("target"), str):
        raise UsageError(f"{where} is {item!r}; want a target such as \"path/file.py:attr\", or a table with target = \"path/file.py:attr\"")
    _only(item, _TARGET, where)
    inputs = item.get("inputs")
    if inputs is not None and not isinstance(inputs, str):
        raise UsageError(f"{where} inputs is {inputs!r}; want \"path/file.py:function\"")
    given, config = (_strings(item.get(name, []), f"{where} {name}", "texts") for name in ("input", "config"))
    return Declared(item["target"], given, inputs, config, _expect(item, where))


def _only(table: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in table:
        if name not in known:
            raise UsageError(f"{where} has a field {name!r}; want {', '.join(known)}")


def _expect(table: dict[str, Any], where: str) -> dict[str, Any]:
    """Fields of Expect, each held to its type."""
    expect = table.get("expect", {})
    if not isinstance(expect, dict):
        raise UsageError(f"{where} expect is {expect!r}; want a table")
    _only(expect, tuple(f.name for f in fields(Expect)), f"{where} expect")
    for name, value in expect.items():
        kind = next(str(f.type) for f in fields(Expect) if f.name == name)
        wanted, told = ((bool, "true or false") if "bool" in kind else ((str, int, float), "a text or a number") if "str | float" in kind
                        else ((int, float), "a number") if "float" in kind else (str, "a text"))
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise UsageError(f"{where} expect {name} is {value!r}; want {told}")
    try:
        Expect(**expect)
    except ValueError as error:
        raise UsageError(f"{where} expect: {error}") from error
    return expect


def _strings(value: Any, where: str, what: str = "rule codes or slugs") -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise UsageError(f"{where} is {value!r}; want a list of {what}")
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


def without_left_out(report: Report, declared: Config) -> Report:
    """The report without the findings that `per-file` leaves out; they count as suppressed."""
    kept = tuple(f for f in report.findings if not left_out(f, declared.per_file, declared.folder))
    return replace(report, findings=kept, suppressed=report.suppressed + len(report.findings) - len(kept))
