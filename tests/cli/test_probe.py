"""`skipway probe`: the numbers are those of the library, whatever the format; errors are one line."""

import csv
import io
import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from typer.testing import CliRunner

import skipway
from skipway._load import load_module
from skipway.cli import app
from skipway.probing import Table
from skipway.probing.lesion import lesion

DATA = pathlib.Path(__file__).parents[1] / "data"


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "probed.py").write_text((DATA / "probed.py").read_text())
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [n for n in sys.modules if n.startswith("_skipway_target_")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["probe", *arguments])


def table(*arguments: str) -> Table:
    done = run(*arguments, "--format", "json")
    assert (done.exit_code, done.stderr) == (0, ""), done.stderr
    return Table.from_dict(json.loads(done.stdout))


def module() -> Any:
    return load_module("probed.py")


def npz(name: str = "a.npz", **arrays: Any) -> str:
    numpy.savez(name, **arrays)
    return name


def test_the_numbers_are_those_of_the_library() -> None:
    found = table("probed.py:net", "--data", "probed.py:ids", "--loss", "probed.py:square")
    wanted = skipway.probe(module().net().eval(), module().ids(), loss=module().square)
    assert found.rows == wanted.rows and found.summary == wanted.summary and found.loss == wanted.loss
    assert (found.inputs, found.loss_name, found.target, found.weights) == ("from probed.py:ids", "probed.py:square", "probed.py:net", "")
    assert found.wiring == wanted.wiring and found.model == "Net" and not found.training


def test_lesion_is_that_of_the_library() -> None:
    found = table("probed.py:net", "--data", "probed.py:ids", "--loss", "next-token", "--lesion")
    model, ids = module().net().eval(), module().ids()

    def loss(out: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    wanted = lesion(model, skipway.probe(model, ids, loss=loss), ids, loss=loss)
    assert found.column("lesion") == wanted.column("lesion") and None not in found.column("lesion")
    assert found.summary[0].rank_correlation == wanted.summary[0].rank_correlation is not None


def test_named_inputs_and_labels() -> None:
    npz(x=numpy.ones((3, 8), dtype=numpy.float32), labels=numpy.array([0, 7, 1]))
    found = table("probed.py:Taking", "--data", "a.npz", "--loss", "classification", "--seed", "5")
    torch.manual_seed(5)
    model = module().Taking().eval()
    wanted = F.cross_entropy(model(torch.ones(3, 8)), torch.tensor([0, 7, 1])).item()
    assert found.loss == pytest.approx(wanted, rel=1e-6)
    assert found.inputs == "a.npz"


def test_random_inputs_say_so_and_follow_the_seed() -> None:
    first, again, other = (table("probed.py:net", "--seed", seed) for seed in ("0", "0", "1"))
    assert first.inputs == "random, seed 0" and other.inputs == "random, seed 1"
    assert first.rows == again.rows != other.rows
    for form in ("text", "csv", "html"):
        assert "random, seed 1" in run("probed.py:net", "--seed", "1", "--format", form).stdout


def test_the_seed_is_that_of_weights_which_the_targets_code_makes_up() -> None:
    first, again, other = (table("probed.py:unseeded", "--data", "probed.py:ids", "--seed", seed).rows for seed in ("0", "0", "1"))
    assert first == again != other


def test_mode_and_dtype() -> None:
    found = table("probed.py:net", "--data", "probed.py:ids", "--mode", "train", "--dtype", "bfloat16")
    model = module().net().to(torch.bfloat16).train()
    torch.manual_seed(0)
    assert found.training and found.dtype == "bfloat16" and max(found.column("rounded")) > 0
    assert found.rows[0] == skipway.probe(model, module().ids()).rows[0]            # before any dropout
    npz(x=numpy.ones((3, 8)))                                                       # float64, as numpy makes it
    assert table("probed.py:Taking", "--data", "a.npz").dtype == "float32"


def test_csv_has_one_row_a_site() -> None:
    done = run("probed.py:net", "--data", "probed.py:ids", "--format", "csv")
    read = list(csv.DictReader(io.StringIO(done.stdout)))
    wanted = table("probed.py:net", "--data", "probed.py:ids")
    assert [float(r["ratio"]) for r in read] == wanted.column("ratio") and [r["module"] for r in read] == wanted.column("module")
    assert {r["inputs"] for r in read} == {"from probed.py:ids"} and {r["grad_stream"] for r in read} == {""}


def test_png_is_a_picture_of_some_size(here: pathlib.Path) -> None:
    pytest.importorskip("matplotlib")
    done = run("probed.py:net", "--format", "png", "--output", "a.png")
    data = (here / "a.png").read_bytes()
    assert (done.exit_code, done.stdout) == (0, "") and data[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(data[16:20], "big") == 1650 and int.from_bytes(data[20:24], "big") > 500


def test_a_written_table_can_be_rendered_without_torch(here: pathlib.Path) -> None:
    run("probed.py:net", "--loss", "next-token", "--lesion", "--format", "json", "--output", "table.json")
    for form in ("text", "csv", "html", "json"):
        code = f"import sys; sys.modules['torch'] = None\nfrom skipway.cli import app\napp(['render', 'table.json', '--format', '{form}'])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=here)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == run("probed.py:net", "--loss", "next-token", "--lesion", "--format", form).stdout


@pytest.mark.parametrize(("change", "part"), [
    ({"schema": "skipway.probe/2"}, "its schema is 'skipway.probe/2', this version reads skipway.probe/1"),
    ({"rows": 3}, "rows is 3, want list"), ({"rows": [{}]}, "there is no rows[0].stream"), ({"notes": [3]}, "notes want texts only"),
    ({"parameters": True}, "parameters is True, want int"), ({"summary": [{"stream": "x", "sites": 1, "look": [[1]]}]}, "dead and look want"),
    ({"wiring": {"schema": "skipway.wiring/9"}}, "wiring: made by a newer skipway")])
def test_a_spoiled_table_is_refused(here: pathlib.Path, change: dict[str, Any], part: str) -> None:
    whole = json.loads(run("probed.py:net", "--format", "json").stdout)
    (here / "table.json").write_text(json.dumps({**whole, **change}))
    done = CliRunner().invoke(app, ["render", "table.json"])
    assert (done.exit_code, done.stdout) == (2, "") and part in done.stderr and done.stderr.count("\n") == 1


def test_find_nonfinite() -> None:
    line = 1 + next(i for i, text in enumerate(pathlib.Path("probed.py").read_text().splitlines()) if "the line of the fault" in text)
    done = run("probed.py:Broken", "--find-nonfinite")
    assert (done.exit_code, done.stderr) == (1, "")
    assert f"probed.py:{line}: `log` in (model)" in done.stdout and "makes NaN of finite values, 256 elements" in " ".join(done.stdout.split())
    assert "passed on by layers.1" in done.stdout and "1 producer of what is not finite" in done.stdout
    said = json.loads(run("probed.py:Broken", "--find-nonfinite", "--format", "json").stdout)
    assert said["schema"] == "skipway.nonfinite/1" and not said["finite"] and said["origins"][0]["line"] == line
    fine = run("probed.py:net", "--find-nonfinite")
    assert fine.exit_code == 0 and "everything is finite" in fine.stdout


def test_what_is_not_finite_is_told_in_the_table() -> None:
    done = run("probed.py:Broken")
    assert done.exit_code == 0 and "elements are not finite" in done.stdout
    assert "Not finite" in run("probed.py:Broken", "--format", "html").stdout


def fits(rows: int) -> str:
    numpy.savez("rows.npz", ids=numpy.zeros((rows, 5), dtype=int))
    return "rows.npz"


def test_out_of_memory_says_what_fits() -> None:
    done = run("probed.py:two_rows", "--data", fits(4))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "skipway: error: out of memory with rows.npz; 2 of the 4 rows fit: --batch 2\n"
    done = run("probed.py:two_rows", "--data", fits(8))
    assert done.stderr.startswith("skipway: error: out of memory with rows.npz; nor do 4 of the 8 rows fit; ask for shorter rows (--tokens)")
    done = run("probed.py:no_rows", "--data", fits(1))
    assert done.stderr.startswith("skipway: error: out of memory with rows.npz; ask for shorter rows (--tokens)")
    assert run("probed.py:two_rows", "--data", fits(2)).exit_code == 0


@pytest.mark.parametrize(("arguments", "part"), [
    (["probed.py:net", "--loss", "probed.py:rows"], "the loss returned a tensor of shape (2,), want one number"),
    (["probed.py:net", "--loss", "probed.py:nothing"], "the loss returned NoneType, want one number"),
    (["probed.py:net", "--loss", "cross"], "--loss: got 'cross', want one of next-token, masked-token, classification or file.py:function"),
    (["probed.py:net", "--loss", "masked-token"], "no mask token is known for this data"),
    (["probed.py:net", "--loss", "classification"], "the data has no labels"),
    (["probed.py:net", "--lesion"], "--lesion: it measures the change of a loss; add --loss next-token"),
    (["probed.py:net", "--find-nonfinite", "--loss", "next-token"], "--find-nonfinite: it looks at one forward and takes no --loss"),
    (["probed.py:net", "--data", "high.npz"], "'ids' holds 30, and the model's vocabulary has 30 tokens, 0 to 29"),
    (["probed.py:net", "--data", "named.npz"], "Net.forward takes no 'x'; it takes ids"),
    (["probed.py:net", "--data", "none.txt"], "--data none.txt: no such file"),
    (["probed.py:Taking", "--data", "wide.npz"], "Taking.forward failed at"),
    (["probed.py:Taking", "--data", "nan.npz"], "input 'x' of shape (2, 8) holds a NaN"),
    (["probed.py:Taking", "--data", "nan.npz", "--find-nonfinite"], "input 'x' of shape (2, 8) holds a NaN"),
    (["probed.py:Plain", "--input", "float32[2,8]"], "Plain has no residual stream with these inputs"),
    (["probed.py:no_half", "--data", "probed.py:ids", "--dtype", "float16"], "this device computes that in no float16: run the model in float32"),
    (["probed.py:net", "--dtype", "int8"], "--dtype: got 'int8', want float32, bfloat16, float16 or float64"),
    (["probed.py:net", "--mode", "test"], "--mode: got 'test', want one of eval, train"),
    (["probed.py:net", "--format", "xml"], "--format: got 'xml', want one of csv, html, json, png, text"),
    (["probed.py:net", "--find-nonfinite", "--format", "csv"], "--format: got 'csv', want one of text, json"),
    (["probed.py:net", "--data", "probed.py:ids", "--inputs", "probed.py:ids"], "--inputs and --data: each gives the inputs; leave all but one out"),
    (["probed.py:net", "--output", "no/such/file"], "--output no/such/file: No such file or directory"),
    (["probed.py:net", "--batch", "0", "--data", "probed.py:ids"], "--batch: got 0, want at least 1"),
    (["nothing.py:net"], "nothing.py: no such file"),
])
def test_errors_are_one_line(arguments: list[str], part: str) -> None:
    npz("high.npz", ids=numpy.array([[1, 30]]))
    npz("named.npz", x=numpy.array([[1]]))
    npz("wide.npz", x=numpy.zeros((2, 9), dtype=numpy.float32))
    npz("nan.npz", x=numpy.full((2, 8), numpy.nan, dtype=numpy.float32))
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, ""), done.stdout
    assert done.stderr.startswith("skipway: error: ") and done.stderr.count("\n") == 1 and part in done.stderr


def test_png_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = run("probed.py:net", "--format", "png", "--output", "a.png")
    assert done.exit_code == 2 and "--format png: it needs the package matplotlib; pip install 'skipway[plot]'" in done.stderr


def test_models_without_weights_get_random_ones_and_every_output_says_so() -> None:
    pytest.importorskip("transformers")
    small = ["--config", "num_hidden_layers=1", "--config", "hidden_size=16", "--config", "intermediate_size=24", "--config", "vocab_size=40",
             "--config", "num_attention_heads=2", "--config", "num_key_value_heads=2"]
    found = table("hf:llama", *small, "--loss", "next-token", "--seed", "3")
    assert found.weights == "random, seed 3" and found.inputs == "random, seed 3" and len(found.rows) == 2
    assert found.notes == ("a real copy of full size with random weights was run instead",)
    for form in ("text", "csv", "html"):
        said = run("hf:llama", *small, "--seed", "3", "--format", form).stdout
        assert ("random weights, seed 3" if form == "text" else "random, seed 3") in said


def test_data_for_a_small_copy_of_a_large_model_is_refused() -> None:
    pytest.importorskip("transformers")
    npz("ids.npz", input_ids=numpy.array([[1, 2]]))
    done = run("hf:llama", "--data", "ids.npz")
    assert done.exit_code == 2 and "--data: hf:llama is large and comes without weights, so a small copy of it is probed" in done.stderr
