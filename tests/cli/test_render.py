"""`skipway render`: a report again from its JSON, without torch."""

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from skipway.cli import app
from skipway.report import formats, render, render_all

from ..report import records


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.json").write_text(json.dumps(REPORT))
    (tmp_path / "several.json").write_text(json.dumps([REPORT, REPORT]))
    return tmp_path


REPORT = json.loads(json.dumps(records.report(records.finding(file="net.py", line=3)).to_dict()))


def run(*arguments: str, **options: Any) -> Any:
    return CliRunner().invoke(app, ["render", *arguments], **options)


@pytest.mark.parametrize("form", formats())
def test_every_format(form: str, here: pathlib.Path) -> None:
    done = run("report.json", "--format", form)
    assert (done.exit_code, done.stderr, done.stdout) == (0, "", render(REPORT, form))
    assert run("report.json", "--format", form, "--output", "out").stdout == ""
    assert (here / "out").read_text(encoding="utf-8") == render(REPORT, form)


def test_text_is_the_default_and_stdin_is_read() -> None:
    assert run("-", input=json.dumps(REPORT)).stdout == run("report.json").stdout == render(REPORT)


def test_several() -> None:
    assert run("several.json").stdout == run("report.json", "report.json").stdout == render_all([REPORT, REPORT])
    done = run("several.json", "--format", "html")
    assert (done.exit_code, done.stdout) == (2, "") and "--format: html holds one report, got 2; name one target" in done.stderr


@pytest.mark.parametrize(("arguments", "part"), [
    (["none.json"], "none.json: No such file or directory"),
    (["report.json", "--format", "xml"], "--format: got 'xml', want one of"),
    (["report.json", "--output", "no/such/file"], "--output no/such/file: No such file or directory"),
    (["report.json", "--output", "."], "--output .: Is a directory"),
    (["newer.json"], "newer.json: made by a newer skipway: its schema is skipway.report/7"),
    (["config.json"], "config.json: neither a report nor a wiring"),
    (["bad.json"], "bad.json: not JSON"),
])
def test_bad_input_is_one_line_and_status_2(here: pathlib.Path, arguments: list[str], part: str) -> None:
    (here / "newer.json").write_text('{"schema": "skipway.report/7"}')
    (here / "config.json").write_text('{"model_type": "llama"}')
    (here / "bad.json").write_text("{")
    before = sorted(here.iterdir())
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("skipway: error: ") and done.stderr.count("\n") == 1 and part in done.stderr
    assert sorted(here.iterdir()) == before


def test_it_needs_no_torch(here: pathlib.Path) -> None:
    code = ("import sys; sys.modules['torch'] = None\nfrom skipway.cli import app\n"
            "for form in ('text', 'json', 'sarif', 'github', 'html', 'svg'): app(['render', 'report.json', '--format', form], standalone_mode=False)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=here)
    assert (done.returncode, done.stderr) == (0, "") and "SKW101" in done.stdout
