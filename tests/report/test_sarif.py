"""SARIF: valid by the published schema, and what code scanning needs of it."""

import json
import pathlib
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import skipway
from skipway.report import render, render_all, several

from . import records, sarif_schema


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    return tmp_path


def run(report: Any) -> dict[str, Any]:
    text = render(report.to_dict() if not isinstance(report, dict) else report, "sarif")
    assert sarif_schema.problems(text) == []
    (one,) = json.loads(text)["runs"]
    return dict(one)


def test_the_driver_and_its_rules() -> None:
    driver = run(records.report())["tool"]["driver"]
    assert driver["name"] == "skipway" and re.fullmatch(r"\d+\.\d+\.\d+", driver["version"])
    first, second = driver["rules"]
    assert (first["id"], first["name"], first["shortDescription"]["text"]) == ("SKW101", "missing-skip", "A sublayer with no path around it")
    assert first["help"]["text"].startswith("What it does\n    Reports a sublayer\n")
    assert first["help"]["markdown"].startswith("**What it does.** Reports a sublayer with no path around it.\n\n**What to do.** Add `x +`.\n\n")
    assert "skipway explain SKW101" in first["help"]["markdown"]
    assert first["defaultConfiguration"] == {"level": "error"} and second["defaultConfiguration"] == {"level": "note"}
    assert "A norm directly follows a norm" in second["help"]["markdown"]


def test_a_result(here: pathlib.Path) -> None:
    found = records.finding(file=str(here / "my src" / "net.py"), line=7, shape=[2, 6])
    (result,) = run(records.report(found))["results"]
    assert (result["ruleId"], result["ruleIndex"], result["level"]) == ("SKW101", 0, "error")
    assert result["message"] == {"text": "no path goes around it"}
    (place,) = result["locations"]
    assert place["physicalLocation"] == {"artifactLocation": {"uri": "my%20src/net.py", "uriBaseId": "%SRCROOT%"}, "region": {"startLine": 7}}
    assert place["logicalLocations"] == [{"name": "ffn", "fullyQualifiedName": "layers.0.ffn", "kind": "member"}]
    assert result["properties"] == {"values": {"shape": [2, 6]}} and "occurrenceCount" not in result
    assert list(result["partialFingerprints"]) == ["skipwayFinding/v1"]


@pytest.mark.parametrize(("severity", "level"), [("error", "error"), ("warning", "warning"), ("note", "note")])
def test_levels(severity: str, level: str) -> None:
    assert run(records.report(records.finding(severity=severity)))["results"][0]["level"] == level


def test_a_file_outside_the_folder_is_named_whole() -> None:
    (result,) = run(records.report(records.finding(file="/usr/lib/a b/net.py", line=3)))["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "file:///usr/lib/a%20b/net.py"}


def test_paths_count_from_the_checkout(here: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "models").mkdir()
    monkeypatch.chdir(here / "models")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(here))
    found = records.finding(file=str(here / "models" / "net.py"), line=3)
    assert run(records.report(found))["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "models/net.py"
    monkeypatch.setenv("GITHUB_WORKSPACE", str(here / "elsewhere"))
    assert run(records.report(found))["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "net.py"


def place(report: Any) -> Any:
    return run(report)["results"][0]["locations"][0].get("physicalLocation")


def test_a_finding_without_a_file(here: pathlib.Path) -> None:
    joined = records.site(0, "layers.0", str(here / "block.py"), 12)
    at_join = {"artifactLocation": {"uri": "block.py", "uriBaseId": "%SRCROOT%"}, "region": {"startLine": 12}}
    assert place(records.report(records.finding("layers.0"), sites=(joined,))) == at_join
    assert place(records.report(records.finding("head"))) == {"artifactLocation": {"uri": "net.py", "uriBaseId": "%SRCROOT%"}}
    assert place(records.report(records.finding("head"), target="hf:conf/config.json")) == {
        "artifactLocation": {"uri": "conf/config.json", "uriBaseId": "%SRCROOT%"}}
    for target in ("hf:llama", "pkg.net:Net", None):
        assert place(records.report(records.finding("head"), target=target)) is None


def prints(report: Any) -> list[str]:
    return [r["partialFingerprints"]["skipwayFinding/v1"] for r in run(report)["results"]]


def test_fingerprints_stay_when_lines_and_layers_move(here: pathlib.Path) -> None:
    def at(line: int, where: str = "layers.0.ffn", message: str = "shape (2, 6)", file: str = "net.py") -> list[str]:
        return prints(records.report(records.finding(where, message, file=str(here / file), line=line)))
    assert at(7) == at(90) == at(7, "layers.3.ffn") == at(7, message="shape (4, 8)")
    assert len({*at(7), *at(7, "layers.0.attn"), *at(7, file="other.py")}) == 3


def test_equal_findings_have_fingerprints_of_their_own(here: pathlib.Path) -> None:
    both = prints(records.report(*(records.finding(message=text, file=str(here / "net.py"), line=line) for text, line in (("a", 3), ("b", 9)))))
    assert len(set(both)) == 2
    assert prints(records.report(records.finding(message="a", file=str(here / "net.py"), line=5)))[0] == both[0]


def test_repeated_blocks_are_one_result(here: pathlib.Path) -> None:
    found = [records.finding(f"layers.{n}.ffn", f"layers.{n}.ffn has none", file=str(here / "net.py"), line=7, n=n) for n in range(3)]
    (result,) = run(records.report(*found))["results"]
    assert result["occurrenceCount"] == 3 and result["message"]["text"] == "layers.0.ffn has none (x3: layers.{0-2}.ffn)"
    assert [one["fullyQualifiedName"] for one in result["locations"][0]["logicalLocations"]] == [f"layers.{n}.ffn" for n in range(3)]
    assert result["properties"]["occurrences"] == [{"where": f"layers.{n}.ffn", "values": {"n": n}} for n in range(3)]


@pytest.mark.parametrize(("severity", "fail_on", "status"), [
    ("error", "error", 1), ("warning", "error", 0), ("warning", "warning", 1), ("note", "note", 1)])
def test_the_invocation_has_the_exit_status(severity: str, fail_on: str, status: int) -> None:
    told = run(records.report(records.finding(severity=severity), fail_on=fail_on, notes=("the forward needs data",)))["invocations"][0]
    assert (told["executionSuccessful"], told["exitCode"]) == (True, status) and fail_on in told["exitCodeDescription"]
    assert told["toolExecutionNotifications"] == [{"level": "note", "message": {"text": "the forward needs data"}}]


def test_a_model_that_was_not_understood_was_not_checked() -> None:
    told = run(records.report(not_understood=("net",)))["invocations"][0]
    assert (told["executionSuccessful"], told["exitCode"]) == (False, 2)


def test_what_was_suppressed_and_the_category() -> None:
    one = run(records.report(suppressed=3))
    assert one["properties"] == {"target": "net.py:Net", "stage": "graph", "suppressed": 3, "sites": 1}
    assert one["automationDetails"] == {"id": "skipway/net.py%3ANet/"}
    assert "automationDetails" not in run(records.report(target=None))


def test_brackets_are_no_links() -> None:
    (result,) = run(records.report(records.finding(message="`norm(x)[0](y)` and [text](https://x)")))["results"]
    assert result["message"]["text"] == "`norm(x)[0] (y)` and [text] (https://x)"


def test_a_report_of_an_older_file_without_rule_texts() -> None:
    old = records.report(records.finding()).to_dict()
    del old["rules"], old["fail_on"]
    rules = run(old)["tool"]["driver"]["rules"]
    assert [(r["id"], r["name"]) for r in rules] == [("SKW101", "missing-skip"), ("SKW205", "SKW205")]


def test_values_that_json_does_not_know() -> None:
    (result,) = run(records.report(records.finding(a=float("nan"), b=torch.float32, c={1}, d=(1, float("-inf")))))["results"]
    assert result["properties"]["values"] == {"a": "nan", "b": "torch.float32", "c": [1], "d": [1, "-inf"]}


def test_several_reports_are_several_runs() -> None:
    assert several("sarif")
    text = render_all([records.report().to_dict(), records.report(target="other.py:Net").to_dict()], "sarif")
    assert sarif_schema.problems(text) == []
    assert [r["automationDetails"]["id"] for r in json.loads(text)["runs"]] == ["skipway/net.py%3ANet/", "skipway/other.py%3ANet/"]


def test_the_schema_sees_a_fault() -> None:
    log = json.loads(render(records.report(records.finding(line=3, file="net.py")).to_dict(), "sarif"))
    for spoil in (lambda r: r.update(level="fatal"), lambda r: r.pop("message"), lambda r: r.update(ruleIndex=-2), lambda r: r.update(where="x"),
                  lambda r: r["locations"][0]["physicalLocation"]["region"].update(startLine=0)):
        one = json.loads(json.dumps(log))
        spoil(one["runs"][0]["results"][0])
        assert sarif_schema.problems(json.dumps(one))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.ffn = nn.ModuleList(nn.LayerNorm(8) for _ in range(4)), nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.ffn[0](self.norm[0](x))
        x = self.norm[1](x)
        x = x + self.ffn[1](x)
        return self.norm[3](x + self.ffn[2](self.norm[2](x)))


def test_a_real_report() -> None:
    report = skipway.check(Net(), torch.randn(2, 4, 8))
    assert report.findings, "the model is wrong on purpose"
    one = run(replace(report, target="net.py:Net"))
    rules = one["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted(report.rules_run)
    for result in one["results"]:
        rule = rules[result["ruleIndex"]]
        assert rule["id"] == result["ruleId"] and "**What to do.**" in rule["help"]["markdown"] and rule["shortDescription"]["text"][0].isupper()
        assert result["locations"][0]["physicalLocation"]["region"]["startLine"] > 0
