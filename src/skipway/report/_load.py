"""Reads a report, or a bare wiring, back from its JSON file."""

import copy
import json
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from skipway._errors import UsageError
from skipway.report._groups import SEVERITIES

VERSIONS = {"report": 1, "wiring": 1}           # the schemas that this version reads: skipway.report/1 and skipway.wiring/1

# Field -> the types it may have, for each kind of record in the two schemas.
NUMBER, TEXT, MAYBE = (int, float), (str,), type(None)
FINDING = {"code": TEXT, "rule": TEXT, "severity": TEXT, "where": TEXT, "message": TEXT, "file": (str, MAYBE), "line": (int, MAYBE),
           "values": (dict,)}
RULE = {"rule": TEXT, "severity": TEXT, "stage": TEXT, "summary": TEXT, "help": TEXT}
BRANCH = {"kind": TEXT, "modules": (list,), "in_norms": (list,), "out_norms": (list,), "drop": TEXT}
SITE = {"index": (int,), "layer": (int,), "module": TEXT, "file": (str, MAYBE), "line": (int, MAYBE), "placement": TEXT, "norm": (str, MAYBE),
        "norm_modules": (list,), "shortcut": TEXT, "gain": (*NUMBER, MAYBE), "scale": TEXT, "branch_scale": (*NUMBER, MAYBE),
        "parallel": (bool,), "in_place": (bool,), "branches": (list,), "shortcut_from": (int, MAYBE), "read_from": (int, MAYBE)}
STREAM = {"name": TEXT, "main": (bool,), "lanes": (int,), "stem": TEXT, "final_norm": (str, MAYBE), "sites": (list,)}
LINK = {"kind": TEXT, "source": TEXT, "source_at": (int,), "target": TEXT, "target_at": (int,)}
WIRING = {"model": TEXT, "parameters": (int,), "how": TEXT, "notes": (list,), "streams": (list,), "links": (list,)}
REPORT = {"target": (str, MAYBE), "stage": TEXT, "ok": (bool,), "fail_on": TEXT, "suppressed": (int,), "rules_run": (list,),
          "findings": (list,), "wiring": (dict,), "rules": (dict,), "not_understood": (list,)}
# Fields that a file of this schema may lack, and what stands in for each.
DEFAULTS: dict[str, Any] = {"fail_on": "error", "rules": {}, "links": [], "shortcut_from": None, "read_from": None, "in_norms": [],
                            "out_norms": [], "drop": "none", "not_understood": []}
TEXT_LISTS = ("notes", "rules_run", "not_understood", "norm_modules", "modules", "in_norms", "out_norms")
SEVERE = ("severity", "fail_on")
KINDS: dict[type, str] = {int: "an integer", float: "a number", str: "a text", bool: "true or false", list: "a list", dict: "an object",
                          MAYBE: "null"}
WRITE_ANEW = "write the file anew with `skipway check TARGET --format json`"


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The report of a JSON file, as `Report.to_dict()` gave it.

    The file holds a report (schema "skipway.report/1") or a bare wiring ("skipway.wiring/1"). A wiring comes back as a report about it:
    no findings, no rules run, `target` None, `ok` True, stage "graph". Every field of the schema is there with a value of its type
    (one that came later is filled in where the file has none), so a format may read it without asking again.

    Raises UsageError, one line that starts with the path: the file cannot be read, is not JSON, is no object, is of another schema
    version, is neither a report nor a wiring, lacks a field, or holds several reports. The path "-" is stdin.
    """
    reports = load_all(path)
    if len(reports) != 1:
        raise UsageError(f"{os.fspath(path)}: it holds {len(reports)} reports, want one; write it with one TARGET, or `skipway render` it as a whole")
    return reports[0]


def load_all(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """As `load`, for a file that may also hold a list of reports, as `skipway check --format json` without a TARGET writes it."""
    return reports_in(*decoded(path))


def reports_in(data: Any, where: str) -> list[dict[str, Any]]:
    """The reports of a decoded JSON value; `where` names its origin in errors."""
    if data == []:
        raise UsageError(f"{where}: an empty list, want at least one report; {WRITE_ANEW}")
    if isinstance(data, list):
        return [as_report(item, f"{where}: [{number}]") for number, item in enumerate(data)]
    return [as_report(data, where)]


def decoded(path: str | os.PathLike[str]) -> tuple[Any, str]:
    """The JSON value of a file, and what errors call the file."""
    where = "stdin" if path == "-" else os.fspath(path)
    try:
        if path == "-":
            text = sys.stdin.read()
        else:
            with open(path, encoding="utf-8") as file:
                text = file.read()
    except OSError as error:
        raise UsageError(f"{where}: {error.strerror}; give a JSON file that `skipway check TARGET --format json` wrote") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: not a text file ({error.reason} at byte {error.start}); {WRITE_ANEW}") from error
    try:
        return json.loads(text), where
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON ({error}); {WRITE_ANEW}") from error


def as_report(data: Any, where: str) -> dict[str, Any]:
    """The report that a decoded JSON value holds; `where` names its origin in errors. See `load`."""
    if schema(data, where) == "wiring":
        data = {"schema": f"skipway.report/{VERSIONS['report']}", "target": None, "stage": "graph", "ok": True, "suppressed": 0,
                "rules_run": [], "findings": [], "wiring": data}
    report = _fields(data, REPORT, where, "")
    if schema(report["wiring"], f"{where}: wiring") != "wiring":
        got = _short(report["wiring"]["schema"])
        raise UsageError(f"{where}: wiring: its schema is {got}, want skipway.wiring/{VERSIONS['wiring']}; {WRITE_ANEW}")
    report["findings"] = _each(report["findings"], FINDING, where, "findings")
    report["rules"] = {code: _fields(rule, RULE, where, f"rules.{code}") for code, rule in report["rules"].items()}
    report["wiring"] = wiring = _fields(report["wiring"], WIRING, where, "wiring")
    wiring["streams"] = _each(wiring["streams"], STREAM, where, "wiring.streams")
    wiring["links"] = _each(wiring["links"], LINK, where, "wiring.links")
    for number, stream in enumerate(wiring["streams"]):
        at = f"wiring.streams[{number}].sites"
        stream["sites"] = _each(stream["sites"], SITE, where, at)
        for place, site in enumerate(stream["sites"]):
            site["branches"] = _each(site["branches"], BRANCH, where, f"{at}[{place}].branches")
    return report


def schema(data: Any, where: str) -> str:
    """"report" or "wiring". Raises UsageError where `data` is neither in a version that can be read."""
    if not isinstance(data, dict):
        raise UsageError(f"{where}: got {_short(data)}, want a JSON object; {WRITE_ANEW}")
    named = data.get("schema")
    match = re.fullmatch(r"skipway\.(report|wiring)/(\d{1,9})", named) if isinstance(named, str) else None
    if match is None:
        said = "it has no schema field" if named is None else f"its schema is {_short(named)}"
        known = " or ".join(f"skipway.{kind}/{version}" for kind, version in VERSIONS.items())
        raise UsageError(f"{where}: neither a report nor a wiring: {said}, want {known}; {WRITE_ANEW}")
    kind, version = match[1], int(match[2])
    if version > VERSIONS[kind]:
        raise UsageError(f"{where}: made by a newer skipway: its schema is {named}, this version reads skipway.{kind}/{VERSIONS[kind]}; "
                         "update skipway, or write the file anew with this version")
    if version < VERSIONS[kind]:
        raise UsageError(f"{where}: made by an older skipway: its schema is {named}, this version reads skipway.{kind}/{VERSIONS[kind]}; "
                         f"{WRITE_ANEW}")
    return kind


def _each(items: list[Any], want: Mapping[str, tuple[type, ...]], where: str, name: str) -> list[dict[str, Any]]:
    return [_fields(item, want, where, f"{name}[{number}]") for number, item in enumerate(items)]


def _fields(item: Any, want: Mapping[str, tuple[type, ...]], where: str, name: str) -> dict[str, Any]:
    """One record, held to its fields, with those that it may lack filled in. A truth value is no number."""
    if not isinstance(item, dict):
        raise UsageError(f"{where}: {name} is {_short(item)}, want an object; {WRITE_ANEW}")
    out = dict(item)
    for field, kinds in want.items():
        at = f"{name}.{field}" if name else field
        if field not in out:
            if field not in DEFAULTS:
                raise UsageError(f"{where}: there is no {at}; {WRITE_ANEW}")
            out[field] = copy.copy(DEFAULTS[field])
        value = out[field]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise UsageError(f"{where}: {at} is {_short(value)}, want {' or '.join(KINDS[kind] for kind in kinds)}; {WRITE_ANEW}")
        if field in SEVERE and value not in SEVERITIES:
            raise UsageError(f"{where}: {at} is {_short(value)}, want one of {', '.join(SEVERITIES)}; {WRITE_ANEW}")
        if isinstance(value, list) and field in TEXT_LISTS and not all(isinstance(v, str) for v in value):
            raise UsageError(f"{where}: {at} is {_short(value)}, want texts only; {WRITE_ANEW}")
    return out


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
