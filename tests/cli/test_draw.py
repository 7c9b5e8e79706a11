"""`skipway draw`: formats by option and by ending, JSON files, bad input."""

import json
import pathlib
import subprocess
import sys
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from skipway.cli import app
from skipway.cli._targets import stored
from skipway.report import drawing, svg

from ..report.drawn import encoder_decoder, finding, report

DATA = pathlib.Path(__file__).parents[1] / "data"
REPORT = report(encoder_decoder(), finding("decoder.block.1.ffn"))


@pytest.fixture
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.json").write_text(json.dumps(REPORT), encoding="utf-8")
    (tmp_path / "wiring.json").write_text(json.dumps(encoder_decoder()), encoding="utf-8")
    return tmp_path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["draw", *arguments])


def test_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA)
    done = run("right.py:net")
    assert (done.exit_code, done.stderr) == (0, "") and "[right.py:net]" in done.stdout.splitlines()[0] and "▼" in done.stdout


def test_findings_are_drawn_and_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA)
    done = run("left_out.py")
    assert done.exit_code == 0 and "SKW101 missing-skip:" in done.stdout and "no skip around it" in done.stdout


@pytest.mark.parametrize("arguments", [[], ["--format", "text"]])
def test_text_is_the_default(here: pathlib.Path, arguments: list[str]) -> None:
    done = run("report.json", *arguments)
    assert (done.exit_code, done.stdout) == (0, drawing.render(REPORT))
    assert run("wiring.json").stdout == drawing.draw(encoder_decoder())


@pytest.mark.parametrize(("name", "start"), [("a.svg", "<?xml"), ("a.SVG", "<?xml"), ("a.html", "<!doctype html>"), ("a.htm", "<!doctype html>"),
                                             ("a.txt", "Net  8.03 B")])
def test_the_ending_says_the_format(here: pathlib.Path, name: str, start: str) -> None:
    done = run("report.json", "--output", name)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    assert (here / name).read_text(encoding="utf-8").lower().startswith(start.lower())


def test_the_option_overrides_the_ending(here: pathlib.Path) -> None:
    assert run("report.json", "--format", "svg", "--output", "drawing").exit_code == 0
    assert (here / "drawing").read_text(encoding="utf-8") == svg.render(REPORT) == run("report.json", "--format", "svg").stdout


def test_open_stream_and_ascii(here: pathlib.Path) -> None:
    opened = run("report.json", "--open").stdout
    assert all(f"encoder.block.{n} " in opened for n in range(3)) and opened == drawing.render(REPORT, open="all")
    alone = run("report.json", "--stream", "decoder").stdout
    assert "encoder.block" not in alone and "reads encoder" in alone
    assert run("report.json", "--ascii").stdout.isascii()
    file = run("report.json", "--open", "--format", "svg", "--stream", "encoder")
    assert ElementTree.fromstring(file.stdout).tag.endswith("svg") and "decoder.block" not in file.stdout.split("</style>")[1].split("normed-skip")[0]


def test_stdout_that_cannot_show_lines_gets_ascii(here: pathlib.Path) -> None:
    done = subprocess.run([sys.executable, "-m", "skipway", "draw", "report.json"], capture_output=True, cwd=here,
                          env={"PYTHONIOENCODING": "ascii", "PATH": "", "PYTHONUTF8": "0"})
    assert done.returncode == 0 and done.stdout.decode("ascii") == drawing.render(REPORT, ascii_only=True)


def test_a_file_is_drawn_without_torch(here: pathlib.Path) -> None:
    code = ("import sys; sys.modules['torch'] = None; sys.argv = ['skipway', 'draw', 'report.json']\n"
            "from skipway.cli import main; main()")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=here, env={"PYTHONUTF8": "1", "PATH": ""})
    assert (done.returncode, done.stdout) == (0, drawing.render(REPORT)), done.stderr


@pytest.mark.parametrize(("arguments", "part"), [
    (["report.json", "--format", "pdf"], "--format: got 'pdf', want one of text, svg, html"),
    (["report.json", "--output", "a.pdf"], "--output a.pdf: no drawing has the ending '.pdf'; want .svg, .html, .htm, .txt, or say --format"),
    (["report.json", "--output", "none"], "no drawing has the ending ''"),
    (["report.json", "--output", "no/such/a.svg"], "--output no/such/a.svg: No such file or directory"),
    (["report.json", "--stream", "vision"], "stream 'vision' is no main stream of this wiring; it has encoder, decoder"),
    (["report.json", "--open", "--format", "html"], "--open: an HTML page opens repeats itself"),
    (["report.json", "--stream", "encoder", "--output", "a.html"], "--stream: an HTML page shows all streams"),
    (["report.json", "--input", "float32[2]"], "--input: it is for a model, and report.json is a file"),
    (["report.json", "--config", "a=1"], "--config: it is for a model"),
    (["report.json", "--mode", "test"], "--mode: got 'test'"),
    (["nothing.json"], "nothing.json: No such file or directory"),
    (["newer.json"], "newer.json: made by a newer skipway: its schema is skipway.wiring/9"),
    (["list.json"], "want a JSON object"),
    (["broken.json"], "broken.json: not JSON"),
    (["links.json"], "wiring.links"),
    (["nothing.py:net"], "nothing.py: no such file")])
def test_bad_input_is_one_line_and_status_2(here: pathlib.Path, arguments: list[str], part: str) -> None:
    whole = encoder_decoder()
    for name, data in {"newer": {**whole, "schema": "skipway.wiring/9"}, "list": [1], "links": {**whole, "links": [3]}}.items():
        (here / f"{name}.json").write_text(json.dumps(data))
    (here / "broken.json").write_text("{")
    before = sorted(p.name for p in here.iterdir())
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "") and sorted(p.name for p in here.iterdir()) == before
    assert done.stderr.startswith("skipway: error: ") and done.stderr.count("\n") == 1 and part in done.stderr


@pytest.mark.parametrize(("target", "want"), [("a.json", True), ("x/y/a.json", True), ("hf:x/config.json", False), ("hf:llama", False),
                                              ("C:\\a.json", True), ("net.py:net", False)])
def test_what_is_a_file(target: str, want: bool) -> None:
    assert stored(target) is want
