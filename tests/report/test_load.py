"""Reading a report back from JSON: what comes back, and one line for each thing that is none."""

import io
import json
import pathlib
from dataclasses import fields
from typing import Any

import pytest

from skipway._errors import UsageError
from skipway.checks.records import Finding, Report, RuleText
from skipway.report import _load
from skipway.report._load import load, load_all
from skipway.wiring.structure import Branch, Link, Site, Stream, Wiring

from . import records


def write(folder: pathlib.Path, value: Any) -> pathlib.Path:
    path = folder / "report.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def whole() -> dict[str, Any]:
    return records.report(records.finding(file="net.py", line=3, shape=[2]), notes=("one",)).to_dict()


def test_a_report_comes_back(tmp_path: pathlib.Path) -> None:
    assert load(write(tmp_path, whole())) == whole()
    assert Report.from_dict(load(write(tmp_path, whole()))).to_dict() == whole()


def test_a_wiring_comes_back_as_a_report(tmp_path: pathlib.Path) -> None:
    wiring = whole()["wiring"]
    report = load(write(tmp_path, wiring))
    assert report["wiring"] == wiring
    assert Report.from_dict(report) == Report((), Wiring.from_dict(wiring))
    assert report == Report((), Wiring.from_dict(wiring)).to_dict()


def test_fields_that_came_later_are_filled_in(tmp_path: pathlib.Path) -> None:
    old = whole()
    del old["rules"], old["fail_on"], old["wiring"]["links"]
    site = old["wiring"]["streams"][0]["sites"][0]
    del site["shortcut_from"], site["read_from"], site["branches"][0]["drop"], site["branches"][0]["in_norms"], site["branches"][0]["out_norms"]
    assert load(write(tmp_path, old)) == {**whole(), "rules": {}}


def test_fields_of_a_later_version_are_kept(tmp_path: pathlib.Path) -> None:
    new = {**whole(), "more": 1}
    new["wiring"]["streams"][0]["sites"][0]["colour"] = "red"
    assert load(write(tmp_path, new)) == new
    assert Report.from_dict(new) == Report.from_dict(whole())


def test_a_list_of_reports(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, [whole(), whole()["wiring"]])
    assert [r["target"] for r in load_all(path)] == ["net.py:Net", None]
    assert load(write(tmp_path, [whole()])) == whole()
    with pytest.raises(UsageError, match="it holds 2 reports, want one"):
        load(write(tmp_path, [whole(), whole()]))


def test_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(whole())))
    assert load("-") == whole()
    monkeypatch.setattr("sys.stdin", io.StringIO("no"))
    with pytest.raises(UsageError, match=r"^stdin: not JSON"):
        load("-")


def spoiled(path: str, value: Any) -> dict[str, Any]:
    """The report with one field, named by its path, set; None of the field where `value` is ... ."""
    report = whole()
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    at: Any = report
    for part in way:
        at = at[part]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return report


@pytest.mark.parametrize(("given", "part"), [
    ("{", "not JSON"), ("", "not JSON"), ("[" * 100_000, "not JSON"),
    ("3", "got 3, want a JSON object"), ("null", "got None"), ("[]", "an empty list"),
    ("[3]", "[0]: got 3, want a JSON object"),
    ("{}", "neither a report nor a wiring: it has no schema field, want skipway.report/1 or skipway.wiring/1"),
    ('{"model_type": "llama"}', "neither a report nor a wiring"),
    ('{"schema": "skipway.diff/1"}', "neither a report nor a wiring: its schema is 'skipway.diff/1'"),
    ('{"schema": 1}', "its schema is 1"),
    ('{"schema": "skipway.report/2"}', "made by a newer skipway: its schema is skipway.report/2, this version reads skipway.report/1; update"),
    ('{"schema": "skipway.report/999999999"}', "made by a newer skipway"),
    ('{"schema": "skipway.wiring/0"}', "made by an older skipway: its schema is skipway.wiring/0"),
    ('{"schema": "skipway.report/1"}', "there is no target"),
    (spoiled("wiring.schema", "skipway.wiring/2"), "wiring: made by a newer skipway"),
    (spoiled("wiring.schema", "skipway.report/1"), "wiring: its schema is 'skipway.report/1', want skipway.wiring/1"),
    (spoiled("wiring", []), "wiring is [], want an object"),
    (spoiled("findings.0.message", ...), "there is no findings[0].message"),
    (spoiled("findings.0.severity", "fatal"), "findings[0].severity is 'fatal', want one of error, warning, note"),
    (spoiled("findings.0.line", "3"), "findings[0].line is '3', want an integer or null"),
    (spoiled("findings.0.line", True), "findings[0].line is True, want an integer or null"),
    (spoiled("findings.0", 3), "findings[0] is 3, want an object"),
    (spoiled("fail_on", "never"), "fail_on is 'never'"),
    (spoiled("rules.SKW101.summary", None), "rules.SKW101.summary is None, want a text"),
    (spoiled("wiring.notes", [1]), "wiring.notes is [1], want texts only"),
    (spoiled("wiring.streams.0.lanes", 1.5), "wiring.streams[0].lanes is 1.5, want an integer"),
    (spoiled("wiring.streams.0.sites.0.gain", "1"), "wiring.streams[0].sites[0].gain is '1', want an integer or a number or null"),
    (spoiled("wiring.streams.0.sites.0.branches.0.kind", ...), "there is no wiring.streams[0].sites[0].branches[0].kind"),
    (spoiled("wiring.streams.0.sites.0.branches.0.modules", "a"), "want a list"),
])
def test_what_is_no_report_is_one_line(tmp_path: pathlib.Path, given: Any, part: str) -> None:
    path = write(tmp_path, given)
    with pytest.raises(UsageError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ") and part in str(caught.value) and "\n" not in str(caught.value)


def test_what_cannot_be_read(tmp_path: pathlib.Path) -> None:
    with pytest.raises(UsageError, match="No such file or directory; give a JSON file"):
        load(tmp_path / "none.json")
    with pytest.raises(UsageError, match="Is a directory"):
        load(tmp_path)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not a text file"):
        load(tmp_path / "bytes.json")


@pytest.mark.parametrize(("kind", "table"), [(Finding, _load.FINDING), (RuleText, _load.RULE), (Branch, _load.BRANCH), (Site, _load.SITE),
                                             (Stream, _load.STREAM), (Link, _load.LINK), (Wiring, _load.WIRING), (Report, _load.REPORT)])
def test_the_table_has_every_field(kind: Any, table: dict[str, Any]) -> None:
    assert set(table) == {f.name for f in fields(kind)} - {"facts"} | ({"ok"} if kind is Report else set())


@pytest.mark.parametrize("data", [{"schema": "skipway.report/2"}, {}, [], None])
def test_from_dict_of_another_schema(data: Any) -> None:
    with pytest.raises(ValueError, match=r"^Report\.from_dict: got schema .*, want 'skipway\.report/1'"):
        Report.from_dict(data)


def test_from_dict_of_half_a_report() -> None:
    half = whole()
    del half["findings"]
    with pytest.raises(UsageError, match="KeyError: 'findings'; the dictionary is no whole report"):
        Report.from_dict(half)
