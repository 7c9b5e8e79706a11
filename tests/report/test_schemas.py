"""docs/schema/: valid schemas, which real reports meet and spoiled ones do not."""

import json
import pathlib
from typing import Any

import jsonschema
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import skipway
from skipway.cli import app
from skipway.report import render

from . import records

FOLDER = pathlib.Path(__file__).parents[2] / "docs" / "schema"


def validator(name: str) -> Any:
    schema = json.loads((FOLDER / f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def problems(name: str, value: Any) -> list[str]:
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in validator(name).iter_errors(value)]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 16, norm_first=n > 0, batch_first=True) for n in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_a_real_report_meets_its_schema() -> None:
    report = skipway.check(Net(), torch.randn(2, 4, 8))
    assert report.findings and len(report.wiring.sites) == 6
    given = json.loads(render(report.to_dict(), "json"))
    assert problems("report", given) == [] and problems("wiring", given["wiring"]) == []
    assert set(given) == set(validator("report").schema["properties"])
    assert set(given["wiring"]) == set(validator("wiring").schema["properties"])
    assert set(given["wiring"]["streams"][0]["sites"][0]) == set(validator("wiring").schema["$defs"]["Site"]["properties"])


def test_a_real_comparison_meets_its_schema(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, sites in (("a", 1), ("b", 2)):
        report = records.report(sites=tuple(records.site(n, f"layers.{n}") for n in range(sites)))
        pathlib.Path(f"{name}.json").write_text(json.dumps(report.to_dict()))
    done = CliRunner().invoke(app, ["diff", "a.json", "b.json", "--json"])
    assert done.exit_code == 1, done.stderr
    given = json.loads(done.stdout)
    assert problems("diff", given) == [] and len(given["differences"]) == 1
    assert set(given["differences"][0]) == set(validator("diff").schema["$defs"]["Difference"]["properties"])


@pytest.mark.parametrize(("path", "value"), [
    ("ok", 1), ("stage", "all"), ("schema", "skipway.report/2"), ("findings.0.severity", "fatal"), ("findings.0.line", "3"),
    ("rules.SKW101.stage", "all"),
    ("wiring.streams.0.sites.0.placement", "side"), ("wiring.streams.0.sites.0.branches.0.kind", "mlp"), ("wiring.parameters", 1.5),
    ("wiring.schema", "x")])
def test_a_spoiled_report_does_not(path: str, value: Any) -> None:
    report = records.report(records.finding(file="net.py", line=3)).to_dict()
    report = json.loads(json.dumps(report))
    assert problems("report", report) == []
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    at: Any = report
    for part in way:
        at = at[part]
    at[last] = value
    assert len(problems("report", report)) == 1
    del at[last]
    assert len(problems("report", report)) == 1
