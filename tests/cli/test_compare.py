"""`skipway compare` as a person meets it: plan, study, resume line, JSON, and one clear line for every mistake."""

import inspect
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from skipway import _registry
from skipway.cli import app, compare
from skipway.cli._compare_plan import duration
from skipway.cli._compare_view import Progress, sparkline
from skipway.lab.engines import Event
from skipway.lab.records import Trial

SMALL = ["--depth", "1", "--width", "8", "--heads", "2", "--batch", "4", "--steps", "20", "--lr", "1e-2", "--workers", "1", "--probes", "2"]
TASK = "copy:symbols=4,length=3"


def skipway(*arguments: object) -> "tuple[int, str, str]":
    done = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def test_dry_run_prints_the_plan_and_starts_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, said, _ = skipway(TASK, *SMALL, "--variants", "pre_norm,highway,hyper:lanes=2", "--seeds", 2, "--dry-run")
    rows = {line.split()[0]: line for line in said.splitlines() if line.startswith("  ")}
    assert code == 0 and f"task {TASK}, seeds 0 to 1" in said and "6 trials, 1 at once: about" in said
    assert "baseline" in rows["pre_norm"] and "100%" in rows["highway"] and "hyper:lanes=2" in rows and not list(tmp_path.iterdir())


@pytest.mark.parametrize(("variants", "told"), [("pre_norm,highway", False), ("pre_norm,deepnorm", True)])
def test_the_plan_says_what_a_start_of_its_own_is(variants: str, told: bool) -> None:
    _, said, _ = skipway(TASK, *SMALL, "--variants", variants, "--dry-run")
    assert ("starts equal below 100 %: " in said) is told and said.count("starts equal") == 1 + told


def test_a_study_from_the_command_line(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "s"
    code, said, told = skipway(TASK, *SMALL, "--seeds", 2, "--out", out)
    assert code == 0 and "4 trials" not in said.splitlines()[0] and told.count("held-out loss") == 4 and "4/4  pre_norm at 0.01, seed 1" in told
    assert "pre_norm" in said and f"report: {out / 'report.html'}" in said and "Each variant at its best learning rate" in said
    again, text, _ = skipway("--report", out)
    assert again == 0 and text.splitlines()[0] in said
    code, plain, told = skipway("--resume", out, "--json")
    assert code == 0 and json.loads(plain) == json.loads((out / "report.json").read_text()) and "0 of 4 trials are left" in told


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
from skipway.cli import main
main()
"""


def test_the_report_is_rebuilt_without_torch(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "s"
    assert skipway(TASK, *SMALL, "--seeds", 2, "--lr", "1e-3,1e-2", "--out", out)[0] == 0
    names = {p.name for p in out.iterdir()}
    assert {"report.html", "report.json", "curves.csv", "figures"} <= names
    pictures = {p.name for p in (out / "figures").iterdir()}
    assert {f"{n}.{form}" for n in ("differences", "held_out", "train", "rates", "gradient-last", "stream-first", "cost-seconds")
            for form in ("png", "svg")} <= pictures
    before = {name: (out / name).read_bytes() for name in ("report.html", "report.json", "curves.csv")}
    assert b"pre_norm" in before["report.html"] and 0 < len(before["report.html"]) < 2_000_000
    for name in before:
        (out / name).unlink()
    done = subprocess.run([sys.executable, "-c", WITHOUT, "compare", "--report", str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {name: (out / name).read_bytes() for name in before} == before
    monkeypatch.setattr("skipway.report._compare.pictures.ready", lambda: False)
    code, said, told = skipway("--report", out)
    assert code == 0 and "report.html" in said and "pip install 'skipway[plot]'" in told and told.count("\n") == 1


def test_a_study_file_with_options_over_it(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(f"task: {TASK}\nvariants: [pre_norm, rezero]\nseeds: 4\ndepth: 1\nwidth: 8\nheads: 2\n")
    code, said, _ = skipway(file, "--seeds", 2, "--steps", 7, "--depth", "1,2", "--dry-run")
    assert code == 0 and "seeds 0 to 1" in said and "rezero depth=2" in said
    file.write_text("task: copy\nseeds: many\n")
    code, said, told = skipway(file, "--dry-run")
    assert (code, said) == (2, "") and f"{file}:2: seeds: want a valid integer" in told.replace("\n", " ")


def test_a_preset_prints_its_claim_and_whether_it_held(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skipway.lab import presets
    code, said, _ = skipway("--preset", "lanes", "--dry-run")
    member = presets.load("lanes")
    assert code == 0 and said.startswith(f"preset lanes: {member.CLAIM}\n  source: {member.SOURCE}\ntask text") and "mhc:lanes=4" in said
    small = {"task": TASK, "depth": 1, "width": 8, "heads": 2, "batch": 4, "steps": 20, "lr": 1e-2, "seeds": 2, "probes": 2}
    monkeypatch.setattr(presets.load("classroom"), "STUDY", small)
    monkeypatch.chdir(tmp_path)
    code, said, _ = skipway("--preset", "classroom", "--workers", 1)
    assert code == 0 and "\nCLAIM FAILED: Six blocks" in said and "failed  share of seeds in which pre_norm learned" in said
    code, said, _ = skipway("--report", "compare-classroom", "--json")
    claim = json.loads(said)["claim"]
    assert code == 0 and claim["held"] is False and [c["held"] for c in claim["checks"]][-1] is True
    assert "classroom: claim failed" in (tmp_path / "compare-classroom" / "report.html").read_text()


@pytest.mark.parametrize(("arguments", "part"), [
    ([], "no task: want one of copy, digits"),
    (["cpoy"], "unknown task 'cpoy'; did you mean copy"),
    (["copy", "--variants", "pre_nrom"], "unknown variant 'pre_nrom'; did you mean pre_norm"),
    (["copy", "--variants", "hyper:lnes=4"], "unknown option 'lnes'; did you mean lanes"),
    (["copy", "--seeds", "0"], "--seeds: seeds: want greater than 0"),
    (["copy", "--lr", "1e-3,fast"], "--lr: lr.1: want a valid number"),
    (["copy", "--optimizer", "adam"], "--optimizer: optimizer: want 'adamw', 'sgd' or 'muon', got 'adam'"),
    (["copy", "--variants", "lama:scheme=rezero"], "unknown variant 'lama'; did you mean llama"),
    (["copy", "--variants", "vit"], "variant vit: vit reads pixel_values, and task copy gives token ids; take another model or task"),
    (["copy", "--variants", "bert"], "variant bert: its output at a token depends on later tokens"),
    (["copy", "--measure", "updates"], "unknown measure 'updates'; did you mean update"),
    (["--preset", "clasroom"], "unknown preset 'clasroom'; did you mean classroom"),
    (["copy", "--preset", "classroom"], "--preset classroom has a task of its own; leave copy out"),
    (["--preset", "classroom", "--seeds", "9"], "preset classroom fixes seeds, on which its thresholds rest; leave seeds out"),
    (["--report", "."], ".: no study there (it has no study.sqlite); give the folder that --out named"),
    (["copy", "--engine", "rai"], "unknown engine 'rai'"),
    (["copy", "--resume", "x"], "--resume takes the study as it is in the folder; leave copy out"),
    (["--report", "x", "--seeds", "3"], "leave --seeds out"),
    (["copy", "--retry"], "--retry belongs to --resume DIR"),
    (["--resume", "no/such/folder"], "no study there"),
    (["text", "--data", "no/such.txt"], "--data no/such.txt: No such file"),
    (["none.yaml"], "none.yaml: No such file"),
])
def test_one_line_for_every_mistake(arguments: "list[str]", part: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, said, told = skipway(*arguments)
    assert (code, said) == (2, "") and told.startswith("skipway: error: ") and told.count("\n") == 1 and part in told, told
    assert not list(tmp_path.iterdir())                     # and no folder is left behind


def test_more_than_an_hour_needs_a_yes(tmp_path: pathlib.Path) -> None:
    code, said, told = skipway(TASK, *SMALL, "--steps", 100_000_000, "--out", tmp_path / "s")
    assert code == 2 and "add --yes to start it" in told and "about" in said and not (tmp_path / "s" / "study.sqlite").exists()


def test_a_folder_that_cannot_be_written(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    code, said, told = skipway("copy", "--out", tmp_path / "file" / "study")
    assert (code, said) == (2, "") and f"{tmp_path / 'file'}: Not a directory; choose a folder that may be written to" in told


def test_a_folder_that_holds_a_study_is_not_begun_anew(tmp_path: pathlib.Path) -> None:
    (tmp_path / "study.sqlite").write_bytes(b"anything")
    code, said, told = skipway("copy", "--out", tmp_path)
    assert (code, said) == (2, "") and f"it already holds a study; go on with --resume {tmp_path}, or choose another folder" in told
    assert (tmp_path / "study.sqlite").read_bytes() == b"anything"


def test_a_data_file_that_is_too_short(tmp_path: pathlib.Path) -> None:
    (tmp_path / "short.txt").write_text("a few words\n")
    code, said, told = skipway("text", "--data", tmp_path / "short.txt", "--out", tmp_path / "s")
    assert (code, said) == (2, "") and "short.txt is too short" in told and "give a longer file, or a smaller length" in told
    assert not (tmp_path / "s").exists()


def test_a_part_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "yaml" else real(name, *a))
    code, _, told = skipway("copy", "--dry-run")
    assert code == 2 and "skipway compare needs pyyaml, which is not installed; run: pip install 'skipway[lab]'" in told


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_stops_at_the_next_step_and_prints_the_line_that_goes_on(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "s"
    words = [sys.executable, "-m", "skipway", "compare", TASK, *SMALL, "--steps", "200000", "--checkpoint", "200000", "--yes", "--out", str(out)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    log, until = out / "study.sqlite-wal", time.monotonic() + 90
    from skipway.lab._store import Store
    while time.monotonic() < until:
        time.sleep(0.5)
        if log.exists():
            store = Store(out)
            running = store.trials("running")
            store.close()
            if running:
                break
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)                   # as a terminal sends it, to the whole group
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130 and told.rstrip().endswith(f"stopped; go on with: skipway compare --resume {out}"), told
    assert len(list((out / "checkpoints").glob("*.safetensors"))) == 1
    second = subprocess.run([sys.executable, "-m", "skipway", "compare", "--report", str(out)], capture_output=True, text=True)
    assert second.returncode == 0 and "nothing to compare" in second.stdout


def test_durations_and_sparklines() -> None:
    assert [duration(s) for s in (0.2, 99, 130, 5990, 12_000)] == ["1 s", "99 s", "2 min", "1 h 40 min", "3 h 20 min"]
    assert sparkline([1.0, 0.5, 0.0, float("nan"), float("inf")]) == "█▄▁××" and sparkline([2.0, 2.0]) == "▁▁" and sparkline([]) == ""


def test_progress_counts() -> None:
    progress, trial = Progress(2, {"a": 10}), Trial("a", 1e-3, 0)
    assert progress.left() is None
    progress.heard(Event("began", trial))
    progress.heard(Event("step", trial, 5, 0.7))
    assert progress.line().startswith("0 of 2 trials done, 1 running, about")
    ended = Event("ended", trial, outcome={"state": "diverged", "final": None, "reason": "at step 5"})
    assert progress.heard(ended) == "1/2  a at 0.001, seed 0  diverged: at step 5"
    assert progress.heard(Event("lost", Trial("a", 1e-3, 1), reason="gone")).endswith("failed: gone") and "1 diverged, 1 failed" in progress.line()


@pytest.mark.parametrize(("option", "package"), [
    ("task", "tasks"), ("preset", "presets"), ("measure", "measures"), ("engine", "engines")])
def test_the_help_names_every_member(option: str, package: str) -> None:
    """The help texts are written out, since they are shown before anything is loaded; a member that they forget is seen here."""
    told = inspect.signature(compare.command).parameters[option].annotation.__metadata__[0].help
    assert [n for n in _registry.spelled(f"skipway.lab.{package}") if n not in told] == []
