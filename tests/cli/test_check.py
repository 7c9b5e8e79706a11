"""`skipway check`: options, output, exit status; the check itself is replaced by one that says what it was given."""

import json
import pathlib
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

import skipway
from skipway._errors import NeedsDataError, TraceError
from skipway.checks.records import Expect, Finding, Report
from skipway.cli import app
from skipway.wiring.structure import Branch, Site, Stream, Wiring

DATA = pathlib.Path(__file__).parents[1] / "data"
SITE = Site(0, 0, "0", None, None, "pre", "LayerNorm", (), "identity", 1.0, "none", 1.0, False, False, (Branch("ffn", ()),))
WIRING = Wiring((Stream("stream", True, 1, "0", None, (SITE,)),), "Net", 10)


class Fake:
    """Stands for skipway.check."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
        self.report = Report((), WIRING)
        self.error: Exception | None = None

    def __call__(self, model: Any, *args: Any, **options: Any) -> Report:
        self.calls.append((model, args, options))
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return self.report


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    monkeypatch.setattr(skipway, "check", made, raising=False)
    monkeypatch.chdir(DATA)
    return made


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["check", *arguments])


def test_clean(fake: Fake) -> None:
    done = run("right.py:net")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("Net  10 parameters") and "[right.py:net]" in done.stdout
    assert "note: inputs: int64[2,16], guessed from embed (Embedding)" in done.stdout


@pytest.mark.parametrize(("severity", "fail_on", "status"), [
    ("error", "error", 1), ("warning", "error", 0), ("warning", "warning", 1), ("note", "warning", 0), ("note", "note", 1), ("error", "note", 1)])
def test_exit_status(fake: Fake, severity: str, fail_on: str, status: int) -> None:
    fake.report = replace(fake.report, findings=(Finding("SKW101", "missing-skip", severity, "0", "text"),))
    assert run("right.py:net", "--fail-on", fail_on).exit_code == status


def test_options_reach_the_check(fake: Fake) -> None:
    done = run("one_class.py", "--input", "x=float32[2,6]", "--stage", "train", "--expect", "placement=pre", "--expect", "parallel=false",
               "--expect", "branch_scale=0.5", "--select", "SKW1,SKW201", "--select", "SKW3", "--ignore", "SKW901", "--hooks", "line",
               "--dtype", "bfloat16", "--entry-point", "other=one_class.py:example_inputs", "--mode", "train")
    assert done.exit_code == 0, done.stderr
    model, args, options = fake.calls[0]
    assert model.training and args == () and options.pop("x").shape == (2, 6)
    (point,) = options.pop("entry_points")["other"]
    assert point.shape == (4, 3, 6)
    assert options == {"stage": "train", "expect": Expect(placement="pre", parallel=False, branch_scale=0.5), "select": ("SKW1", "SKW201", "SKW3"),
                       "ignore": ("SKW901",), "hooks": ("line",), "dtype": "bfloat16"}


def test_json_and_output(fake: Fake, tmp_path: pathlib.Path) -> None:
    done = run("right.py:net", "--format", "json", "--output", str(tmp_path / "report.json"))
    assert (done.exit_code, done.stdout) == (0, "")
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["schema"] == "skipway.report/1" and written["target"] == "right.py:net"
    assert json.loads(run("right.py:net", "--format", "json").stdout) == written


def test_quiet(fake: Fake) -> None:
    assert run("right.py:net", "--quiet").stdout == ""


def test_a_model_without_a_stream(fake: Fake) -> None:
    fake.report = Report((), Wiring((), "Sequential", 0))
    done = run("odd_inputs.py:plain_vgg")
    assert done.exit_code == 0 and "note: no residual stream was found" in done.stdout


def test_a_forward_that_needs_data_runs_on_a_small_copy(fake: Fake) -> None:
    pytest.importorskip("transformers")
    fake.error = NeedsDataError("the forward needs data (nonzero)")
    done = run("hf:llama", "--format", "json")
    assert done.exit_code == 0, done.stderr
    assert [call[0].config.num_hidden_layers for call in fake.calls] == [32, 4]
    notes = json.loads(done.stdout)["wiring"]["notes"]
    assert notes[0].startswith("the forward needs data (nonzero): a small real copy with random weights was run instead (num_hidden_layers 32 to 4")


def test_a_stage_that_needs_numbers_runs_on_a_small_copy(fake: Fake) -> None:
    pytest.importorskip("transformers")
    done = run("hf:llama", "--stage", "values", "--format", "json")
    assert done.exit_code == 0 and [call[0].config.num_hidden_layers for call in fake.calls] == [4]
    assert json.loads(done.stdout)["wiring"]["notes"][0].startswith("stage values needs numbers: a small real copy")


def test_needs_data_without_a_small_copy(fake: Fake) -> None:
    fake.error = NeedsDataError("Net.forward needs data")
    done = run("right.py:net")
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", "skipway: error: Net.forward needs data\n")


@pytest.mark.parametrize(("arguments", "part"), [
    (["nothing.py:net"], "nothing.py: no such file"),
    (["right.py:nett"], "has no 'nett'"),
    (["raises.py:net"], "raises.py:3: raises.py cannot be imported: RuntimeError: broken on"),
    (["odd_inputs.py:NeedsArguments"], "needs the arguments dim, depth"),
    (["right.py:net", "--inputs", "right.py:no_tensors"], "no tensor among them"),
    (["right.py:net", "--input", "x=float[2]"], "got dtype 'float'"),
    (["right.py:net", "--stage", "all"], "--stage: got 'all', want one of graph, values, train"),
    (["right.py:net", "--fail-on", "never"], "--fail-on: got 'never'"),
    (["right.py:net", "--mode", "test"], "--mode: got 'test'"),
    (["right.py:net", "--format", "xml"], "--format: got 'xml', want one of"),
    (["right.py:net", "--expect", "placment=pre"], "did you mean placement"),
    (["right.py:net", "--expect", "placement=side"], "placement='side'"),
    (["right.py:net", "--expect", "parallel=1"], "want true or false"),
    (["right.py:net", "--expect", "skip_scale=x"], "want a number"),
    (["right.py:net", "--entry-point", "right.py:inputs"], "want NAME=FILE.py:FUNCTION"),
    (["right.py:net", "--entry-point", "a=right.py:keyword_inputs"], "returned keyword arguments"),
    (["one_class.py", "--input", "stage=float32[2,6]"], "'stage' has the name of an option"),
    (["right.py:net", "--output", "no/such/folder/file"], "--output no/such/folder/file: No such file or directory"),
])
def test_bad_input_is_one_line_and_status_2(fake: Fake, arguments: list[str], part: str) -> None:
    before = sorted(p.name for p in DATA.iterdir())
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("skipway: error: ") and done.stderr.count("\n") == 1 and part in done.stderr
    assert sorted(p.name for p in DATA.iterdir() if p.name != "__pycache__") == [n for n in before if n != "__pycache__"]


def test_debug_prints_the_targets_own_traceback(fake: Fake) -> None:
    done = run("right.py:fails", "--debug")
    assert done.exit_code == 2
    assert "Traceback" in done.stderr and 'raise ValueError("the factory\'s own failure")' in done.stderr
    assert done.stderr.splitlines()[-1].startswith("skipway: error: right.py:66: right.py:fails failed")


def test_errors_of_the_check(fake: Fake) -> None:
    fake.error = TraceError("Net.forward failed at net.py:3:\n  RuntimeError: shapes")
    assert run("right.py:net").stderr == "skipway: error: Net.forward failed at net.py:3: RuntimeError: shapes\n"
    fake.error = ZeroDivisionError("oops")
    done = run("right.py:net")
    assert done.exit_code == 2 and done.stderr.startswith("skipway: error: skipway itself failed: ZeroDivisionError: oops; run it again with --debug")
