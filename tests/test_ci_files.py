"""What other projects point at: the pre-commit hooks and the GitHub action. Their YAML is read and their commands are run."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from skipway.cli import app

from .report import sarif_schema

ROOT = pathlib.Path(__file__).parents[1]
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")

NET = '''
import torch
import torch.nn as nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.mix = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
        self.ffn = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x):
        x = x + self.mix(self.norm1(x))
        return self.ffn(self.norm2(x))

class Right(Block):
    def forward(self, x):
        x = x + self.mix(self.norm1(x))
        return x + self.ffn(self.norm2(x))

example_inputs = torch.randn(2, 4, 8)
'''


@pytest.fixture
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "pyproject.toml").write_text('[tool.skipway]\ntargets = ["net.py:Block"]\n')
    return tmp_path


def test_hooks() -> None:
    assert [hook["id"] for hook in HOOKS] == ["skipway", "skipway-isolated"]
    for hook in HOOKS:
        assert hook["pass_filenames"] is False and hook["require_serial"] is True and hook["language"] in ("system", "python")
        assert set(hook) == {"id", "name", "description", "entry", "language", "types_or", "pass_filenames", "require_serial"}


def test_the_hooks_command_checks_what_is_declared(here: pathlib.Path) -> None:
    for hook in HOOKS:
        command = shlex.split(hook["entry"])
        assert command[0] == "skipway"
        done = CliRunner().invoke(app, command[1:])
        assert done.exit_code == 1 and "net.py:14: SKW101" in done.stdout


def steps() -> dict[str, Any]:
    return {step["name"]: step for step in ACTION["runs"]["steps"]}


def test_the_action_reads() -> None:
    assert ACTION["runs"]["using"] == "composite" and ACTION["name"] and ACTION["description"]
    for name, given in ACTION["inputs"].items():
        assert isinstance(given["default"], str) and given["description"], name
    for step in ACTION["runs"]["steps"]:
        assert ("uses" in step) != ("run" in step) and (step.get("shell") == "bash" or "uses" in step)
        assert "${{" not in step.get("run", ""), "inputs reach a script through its environment, where they cannot be code"
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    used = set(re.findall(r"inputs\.([\w-]+)", text))
    assert used == set(ACTION["inputs"])


def test_the_page_has_every_input_as_it_is() -> None:
    rows = {m[1]: (m[2], m[3]) for m in re.finditer(r"^\| `([\w-]+)` \| (?:`(.*?)`)? ?\| (.*) \|$", PAGE, re.M)}
    for name, given in ACTION["inputs"].items():
        assert rows.get(name) == (given["default"] or None, given["description"])


def test_the_examples_of_the_page_read() -> None:
    found = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.S)]
    hooks = [hook["id"] for part in found for repo in part.get("repos", []) for hook in repo["hooks"]]
    uses = [step for part in found for job in part.get("jobs", {}).values() for step in job["steps"] if "skipway" in step["uses"]]
    assert set(hooks) <= {hook["id"] for hook in HOOKS} and hooks
    assert len(uses) == 2 and all(set(step.get("with", {})) <= set(ACTION["inputs"]) for step in uses)


def run(step: str, folder: pathlib.Path, **given: str) -> tuple[int, str, dict[str, str]]:
    """Runs a step's script as the runner does; its exit status, its output and what it set."""
    outputs = folder / "outputs.txt"
    outputs.write_text("")
    inputs = {name: one["default"] for name, one in ACTION["inputs"].items()} | {k.replace("_", "-"): v for k, v in given.items()}
    own = {key: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: inputs[m[1]], value) for key, value in steps()[step]["env"].items()}
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    script = folder / "step.sh"
    script.write_text(steps()[step]["run"])
    done = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "PATH": path, "GITHUB_OUTPUT": str(outputs), "GITHUB_WORKSPACE": str(folder), **own})
    return done.returncode, done.stdout + done.stderr, dict(line.split("=", 1) for line in outputs.read_text().splitlines())


def test_the_action_annotates(here: pathlib.Path) -> None:
    code, text, out = run("Check", here, target="net.py:Right\nnet.py:Block\n", arguments="--input\nfloat32[1,3,8]\n")
    assert (code, out) == (0, {"status": "1"})
    assert [line.split(" ")[0] for line in text.splitlines()] == ["skipway:", "::error", "skipway:"]
    assert "::error file=net.py,line=14,title=SKW101 missing-skip::`ffn` keeps the shape (1, 3, 8)" in text


def test_the_action_writes_sarif(here: pathlib.Path) -> None:
    code, text, out = run("Check", here, format="sarif", fail_on="note")
    assert (code, out) == (0, {"status": "1", "sarif": str(here / "skipway.sarif")}) and "net.py:14: SKW101" in text and "::error" not in text
    log = (here / "skipway.sarif").read_text()
    assert sarif_schema.problems(log) == []
    (one,) = json.loads(log)["runs"]
    assert one["invocations"][0]["exitCode"] == 1 and one["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "net.py"


def test_the_action_with_targets_that_cannot_be_checked(here: pathlib.Path) -> None:
    code, text, out = run("Check", here, target="net.py:Missing\n$(touch hacked); echo\n", format="sarif")
    assert (code, out) == (0, {"status": "2"}) and text.count("skipway: error: ") == 2
    assert not (here / "hacked").exists() and not (here / "skipway.sarif").exists()


def test_the_result_is_the_exit_status(here: pathlib.Path) -> None:
    for status in ("0", "1", "2"):
        step = steps()["Result"]
        assert step["env"] == {"STATUS": "${{ steps.check.outputs.status }}"}
        assert subprocess.run(["bash", "-e", "-c", step["run"]], env={**os.environ, "STATUS": status}).returncode == int(status)


def test_what_is_installed(here: pathlib.Path) -> None:
    (here / "python").write_text('#!/bin/bash\nprintf "%s\\n" "$@" > pip.txt\n')
    (here / "python").chmod(0o755)
    script = steps()["Install skipway"]["run"]
    for given, words in (("action", ["/the/action"]), ("action\n-e\n.\n", ["/the/action", "-e", "."]),
                         ("action[hf]\nactions\n", ["/the/action[hf]", "actions"]), ("skipway==0.1.0", ["skipway==0.1.0"])):
        subprocess.run(["bash", "-eo", "pipefail", "-c", script], cwd=here, check=True,
                       env={"PATH": f"{here}:{os.environ['PATH']}", "INSTALL": given, "ACTION": "/the/action"})
        assert (here / "pip.txt").read_text().splitlines() == ["-m", "pip", "install", *words]
