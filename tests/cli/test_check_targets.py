"""`skipway check` without a TARGET: everything that [tool.skipway] declares."""

import json
import pathlib
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from skipway.cli import app

from ..report import sarif_schema

NETS = '''
import torch
import torch.nn as nn

class Block(nn.Module):
    def __init__(self, skip=True):
        super().__init__()
        self.skip = skip
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.mix = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
        self.ffn = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x):
        x = x + self.mix(self.norm1(x))
        y = self.ffn(self.norm2(x))
        return self.norm2(x + y if self.skip else y)

def right():
    return Block()

def wrong():
    return Block(skip=False)

def inputs():
    return torch.randn(2, 4, 8)
'''


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    (tmp_path / "nets.py").write_text(NETS)
    return tmp_path


def declare(folder: pathlib.Path, *targets: str) -> None:
    given = ", ".join(t if t.startswith("{") else f'"{t}"' for t in targets)
    (folder / "pyproject.toml").write_text(f"[tool.skipway]\ntargets = [{given}]\n")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["check", *arguments])


GIVEN = '{ target = "nets.py:%s", inputs = "nets.py:inputs" }'
RIGHT, WRONG = GIVEN % "right", GIVEN % "wrong"


def test_each_has_its_report_and_the_status_is_the_worst(here: pathlib.Path) -> None:
    declare(here, RIGHT, WRONG)
    done = run()
    assert (done.exit_code, done.stderr) == (1, "")
    first, second = done.stdout.split("Block  ")[1:]
    assert "[nets.py:right]" in first and "no findings" in first and first.endswith("\n\n")
    assert "[nets.py:wrong]" in second and "nets.py:15: SKW101 missing-skip" in second
    declare(here, RIGHT)
    assert run().exit_code == 0


def test_one_that_cannot_be_checked_does_not_hide_the_others(here: pathlib.Path) -> None:
    declare(here, "nets.py:missing", WRONG)
    done = run()
    assert done.exit_code == 2 and "SKW101" in done.stdout
    assert done.stderr.startswith("skipway: error: nets.py:missing: ")
    assert (done.stderr.count("\n"), done.stderr.count("nets.py:missing: ")) == (1, 1)
    declare(here, "nets.py:missing")
    done = run("--format", "json", "--output", "out.json")
    assert (done.exit_code, done.stdout) == (2, "") and not (here / "out.json").exists()


def test_formats(here: pathlib.Path) -> None:
    declare(here, RIGHT, WRONG)
    reports = json.loads(run("--format", "json").stdout)
    assert [(r["target"], r["ok"]) for r in reports] == [("nets.py:right", True), ("nets.py:wrong", False)]
    log = run("--format", "sarif").stdout
    assert sarif_schema.problems(log) == []
    assert [(r["properties"]["target"], len(r["results"])) for r in json.loads(log)["runs"]] == [("nets.py:right", 0), ("nets.py:wrong", 1)]
    lines = run("--format", "github").stdout.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["skipway:", "::error", "skipway:"]
    for form in ("html", "svg"):
        done = run("--format", form)
        assert (done.exit_code, done.stdout) == (2, "")
        assert f"--format {form}: it holds one report and [tool.skipway] declares 2 targets; name one TARGET" in done.stderr
    declare(here, WRONG)
    assert run("--format", "html").stdout.startswith("<!")
    assert [r["target"] for r in json.loads(run("--format", "json").stdout)] == ["nets.py:wrong"]
    assert json.loads(run("nets.py:wrong", "--inputs", "nets.py:inputs", "--format", "json").stdout)["target"] == "nets.py:wrong"


def test_paths_count_from_the_pyproject(here: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(here, WRONG)
    (here / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(here / "deep" / "er")
    done = run("--quiet")
    assert done.exit_code == 1 and "nets.py:15: SKW101" in done.stdout
    assert pathlib.Path.cwd() == here / "deep" / "er"


def test_options_of_a_target(here: pathlib.Path) -> None:
    declare(here, '{ target = "nets.py:right", input = ["float32[1,3,8]"], expect = { placement = "post" } }', RIGHT)
    done = run("--quiet")
    assert done.exit_code == 1 and done.stdout.count("SKW202") == 2
    assert run("--expect", "placement=pre").exit_code == 0


def test_options_of_the_command_line_go_to_all(here: pathlib.Path) -> None:
    declare(here, WRONG, WRONG)
    assert run("--ignore", "missing-skip").exit_code == 0
    assert run("--ignore", "missing-skip", "--fail-on", "note", "--format", "json").stdout.count('"fail_on": "note"') == 2


@pytest.mark.parametrize(("option", "value"), [("--input", "float32[2]"), ("--inputs", "nets.py:inputs"), ("--config", "a=1"),
                                               ("--entry-point", "decode=nets.py:inputs")])
def test_options_of_one_target_need_one(here: pathlib.Path, option: str, value: str) -> None:
    declare(here, RIGHT)
    done = run(option, value)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"{option}: it belongs to one target and no TARGET was given" in done.stderr


def test_nothing_declared(here: pathlib.Path) -> None:
    done = run()
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1) and "no TARGET was given and no pyproject.toml declares any" in done.stderr
    (here / "pyproject.toml").write_text("[tool.skipway]\nignore = ['SKW307']\n")
    assert "pyproject.toml declares no targets; name one" in run().stderr


def test_the_configuration_is_read_once(here: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skipway.checks import config
    declare(here, RIGHT, WRONG)
    real, calls = config.read, []
    monkeypatch.setattr(config, "read", lambda *a: calls.append(a) or real(*a))
    assert run().exit_code == 1 and len(calls) == 1


def test_a_model_that_was_not_understood_is_status_2(here: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    import skipway
    declare(here, RIGHT)
    real = skipway.check
    monkeypatch.setattr(skipway, "check", lambda *a, **k: replace(real(*a, **k), not_understood=("stream",)), raising=False)
    assert run().exit_code == 2
