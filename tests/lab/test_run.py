"""Whole studies on the local engine: what is stored, failures as rows, kills, stops, and the sequential design."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from small import facts

from skipway import lab
from skipway._errors import StoreError, StudyError
from skipway.lab._run import Stopped
from skipway.lab._store import Store

SMALL: dict[str, Any] = {"task": "copy:symbols=4,length=3", "depth": 1, "width": 8, "heads": 2, "batch": 4, "steps": 20, "lr": [1e-3, 1e-2],
                         "seeds": 2, "held_out": 1, "checkpoint": 6, "probes": [0, 20]}
NETS = """
import os
import torch
from torch import nn


def plain(vocabulary, classes):
    return nn.Embedding(vocabulary, classes)


class Broken(nn.Module):
    def __init__(self, vocabulary, classes, how="raises"):
        super().__init__()
        self.table, self.calls, self.how = nn.Embedding(vocabulary, classes), 0, how

    def forward(self, x):
        self.calls += 1
        print("a model that prints")
        if self.calls > 15:
            if self.how == "raises":
                raise RuntimeError("broken at last\\nsecond line")
            if self.how == "memory":
                torch.empty(1 << 50)
            if self.how == "dies":
                os.kill(os.getpid(), 9)
        return self.table(x)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> "tuple[pathlib.Path, dict[str, Any]]":
    folder = tmp_path_factory.mktemp("whole")
    return folder, lab.run(lab.Study(**SMALL), folder, workers=1)


def test_the_report(whole: "tuple[pathlib.Path, dict[str, Any]]") -> None:
    folder, record = whole
    assert record == json.loads((folder / "report.json").read_text()) and record["schema"] == "skipway.compare/1" and record["complete"]
    assert [a["name"] for a in record["arms"]] == ["none:normed=true", "pre_norm"] and [a["baseline"] for a in record["arms"]] == [True, False]
    assert len(record["trials"]) == 8 and {t["state"] for t in record["trials"]} == {"finished"}
    pre = record["arms"][1]
    assert pre["shared"] == pre["paired"] == pre["parameters"] and pre["flops"] > 0 and pre["wiring"]["schema"] == "skipway.wiring/1"
    assert record["comparisons"][0]["variant"] == "pre_norm" and record["comparisons"][0]["seeds"] == 2
    assert {a["claim"] for a in record["answers"]} == {"gradient", "convergence", "information"}
    assert len(record["rates"]) == 4 and record["environment"]["torch"] and "git" in record["environment"]
    rows = (folder / "curves.csv").read_text().splitlines()
    assert rows[0] == "arm,lr,seed,split,step,loss,score,rate,gradient" and len(rows) == 1 + sum(len(t["points"]) for t in record["trials"])
    assert not list((folder / "checkpoints").iterdir())


def test_the_report_is_rebuilt_without_torch(whole: "tuple[pathlib.Path, dict[str, Any]]") -> None:
    code = ("import sys, json, pathlib; from skipway.lab import _report; from skipway.lab._store import Store; "
            f"folder = pathlib.Path({str(whole[0])!r}); "
            "made = _report.made(Store(folder)); print(made == json.loads((folder / 'report.json').read_text()), 'torch' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "True False\n"


def test_trials_in_a_worker_are_those_of_this_process(whole: "tuple[pathlib.Path, dict[str, Any]]") -> None:
    from skipway.lab import _trial, tasks
    from skipway.lab._machine import settings
    settings(1)
    store = Store(whole[0])
    first = store.trials()[2]
    kept, made = store.outcomes()[first], next(a for a in store.arms() if a.name == first.arm)
    store.close()
    out = _trial.run(made, first, tasks.build(made.task))
    assert out is not None and (out.points, out.depths, out.readouts) == (kept.points, kept.depths, kept.readouts)


def test_a_stop_and_a_resume_change_nothing(whole: "tuple[pathlib.Path, dict[str, Any]]", tmp_path: pathlib.Path) -> None:
    seen: list[str] = []
    with pytest.raises(Stopped):
        lab.run(lab.Study(**SMALL), tmp_path, workers=1, tell=lambda e: seen.append(e.kind), stop=lambda: seen.count("ended") >= 2)
    assert seen.count("ended") in (2, 3) and seen[-1] in ("stopped", "ended")
    with pytest.raises(StoreError, match="already holds a study"):
        lab.run(lab.Study(**SMALL), tmp_path, workers=1)
    record = lab.resume(tmp_path, workers=1)
    assert record["complete"] and facts(tmp_path) == facts(whole[0])


KILLED = "import sys, json\nfrom skipway import lab\nstudy = lab.Study(**json.loads(sys.argv[2]))\nlab.run(study, sys.argv[1], workers=1)\n"
AGAIN = "import sys\nfrom skipway import lab\nlab.resume(sys.argv[1], workers=1)\n"


@pytest.mark.slow
def test_kills_at_random_moments(whole: "tuple[pathlib.Path, dict[str, Any]]", tmp_path: pathlib.Path) -> None:
    """SIGKILL to the main process, three times; bench/kills.py does a hundred."""
    rng, folder = random.Random(3), tmp_path / "s"
    for _ in range(3):
        begun = (folder / "study.sqlite").exists()
        words = [AGAIN, str(folder)] if begun else [KILLED, str(folder), json.dumps(SMALL)]
        process = subprocess.Popen([sys.executable, "-c", *words], stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while not (folder / "study.sqlite").exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 5))
        process.send_signal(signal.SIGKILL)
        process.wait()
    lab.resume(folder, workers=1)
    assert facts(folder) == facts(whole[0])


@pytest.mark.slow
def test_a_trial_that_fails_is_a_row_and_the_rest_go_on(tmp_path: pathlib.Path) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    nets = tmp_path / "nets.py"
    names = [f"{nets}:plain", *(f"{nets}:Broken:how={how}" for how in ("raises", "memory", "dies"))]
    record = lab.run(lab.Study(**{**SMALL, "lr": 1e-2, "seeds": 1, "variants": names, "steps": 30, "probes": 0}), tmp_path / "out", workers=1)
    states = {t["arm"].rpartition("=")[2].rpartition(":")[2]: (t["state"], t["reason"]) for t in record["trials"]}
    assert states["plain"] == ("finished", "") and states["raises"] == ("failed", "RuntimeError: broken at last")
    assert states["memory"][0] == "failed" and states["memory"][1].startswith("out of memory: ")
    assert states["dies"] == ("failed", "its worker was ended by SIGKILL, as the system does when memory runs out")
    assert "a model that prints" in (tmp_path / "out" / "workers.log").read_text()
    assert [c["verdict"] for c in record["comparisons"]] == ["no difference shown"] * 3 and record["summary"][1]["failed"] == 1
    nets.write_text(NETS.replace("self.calls > 15", "False"))
    again = lab.resume(tmp_path / "out", workers=1, retry=True)
    assert {t["state"] for t in again["trials"]} == {"finished"}


def limited(folder: pathlib.Path, size: int) -> "subprocess.CompletedProcess[str]":
    code = ("import resource, signal, sys, json\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nfrom skipway import lab\n"
            f"made = lab.plan(lab.Study(**json.loads(sys.argv[2])))\nresource.setrlimit(resource.RLIMIT_FSIZE, ({size}, resource.RLIM_INFINITY))\n"
            "lab.run(made, sys.argv[1], workers=1)\n")
    return subprocess.run([sys.executable, "-c", code, str(folder), json.dumps({**SMALL, "width": 64, "seeds": 1})], capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of a process")
def test_a_disk_that_takes_no_checkpoint_stops_cleanly(tmp_path: pathlib.Path) -> None:
    done = limited(tmp_path / "s", 200_000)
    last = done.stderr.strip().splitlines()[-1]
    assert "the disk is full; what was finished is kept" in last and f"--resume {tmp_path / 's'}" in last, done.stderr
    store = Store(tmp_path / "s")
    assert "failed" not in {state for state, _ in store.states().values()}
    store.close()
    assert lab.resume(tmp_path / "s", workers=1)["complete"]


def test_a_store_that_takes_no_more_rows_stops_cleanly_and_goes_on(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills while the study runs: what ended before is kept, and with room again it goes on to the same numbers."""
    real = Store.ended
    calls: list[int] = []

    def full(self: Store, trial: Any, outcome: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            pages = self.db.execute("PRAGMA page_count").fetchone()[0]
            self.db.execute(f"PRAGMA max_page_count = {pages}")
        real(self, trial, outcome)

    monkeypatch.setattr(Store, "ended", full)
    with pytest.raises(StoreError, match=f"the disk is full; what was finished is kept. Make room, .* compare --resume {tmp_path / 's'}"):
        lab.run(lab.Study(**SMALL, evaluate=1), tmp_path / "s", workers=1)
    monkeypatch.setattr(Store, "ended", real)
    store = Store(tmp_path / "s")
    before, states = store.outcomes(), [state for state, _ in store.states().values()]
    store.close()
    assert 2 <= len(before) < 8 and {o.state for o in before.values()} == {"finished"} and "failed" not in states
    record = lab.resume(tmp_path / "s", workers=1)
    store = Store(tmp_path / "s")
    after = store.outcomes()
    store.close()
    assert record["complete"] and all(after[t] == o for t, o in before.items()) and len(after) == 8


def test_further_files_are_written_when_asked(tmp_path: pathlib.Path) -> None:
    from skipway.report import comparison
    study = lab.Study(**{**SMALL, "seeds": 1, "lr": 1e-3, "steps": 4, "probes": 0})
    record = lab.run(study, tmp_path / "s", workers=1, files=comparison)
    page = (tmp_path / "s" / "report.html").read_text()
    assert record["comparisons"][0]["sentence"].replace("'", "&#39;")[:40] in page and dict(comparison(record))["report.html"].decode() == page
    lab.run(study, tmp_path / "bare", workers=1)
    assert not (tmp_path / "bare" / "report.html").exists()


SCHEMAS = pathlib.Path(__file__).parents[2] / "docs" / "schema"


def problems(name: str, value: Any) -> list[str]:
    import jsonschema
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in jsonschema.Draft202012Validator(schema).iter_errors(value)]


def test_a_report_meets_its_schema(whole: "tuple[pathlib.Path, dict[str, Any]]") -> None:
    _, record = whole
    assert problems("compare", record) == []
    schema = json.loads((SCHEMAS / "compare.schema.json").read_text(encoding="utf-8"))
    assert set(record) == set(schema["properties"])
    for section, part in (("arms", "Arm"), ("summary", "Summary"), ("rates", "Rate"), ("comparisons", "Comparison"), ("answers", "Answer"),
                          ("trials", "TrialRow")):
        assert set(record[section][0]) == set(schema["$defs"][part]["properties"]), section
    assert problems("study", record["study"]) == []


@pytest.mark.parametrize("path", ["schema", "complete", "threshold", "claim", "task.chance", "arms.0.depth", "summary.0.loss.mean", "rates.0.lr",
                                  "comparisons.0.verdict", "trials.0.state", "trials.0.points.0.step", "study"])
def test_a_spoiled_report_does_not(path: str, whole: "tuple[pathlib.Path, dict[str, Any]]") -> None:
    record = json.loads(json.dumps(whole[1]))
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    at: Any = record
    for part in way:
        at = at[part]
    at[last] = "spoiled"
    assert problems("compare", record)
    del at[last]
    assert problems("compare", record)


@pytest.mark.slow
def test_a_sequential_study_adds_seeds_until_decided(tmp_path: pathlib.Path) -> None:
    variants = ["pre_norm", {"name": "slow", "variant": "pre_norm", "lr": [1e-6]}, {"name": "twin", "variant": "pre_norm"}]
    study = lab.Study(**{**SMALL, "variants": variants, "lr": 3e-2, "seeds": 3, "max_seeds": 5, "until_decided": True, "probes": 0, "steps": 80})
    record = lab.run(study, tmp_path, workers=1)
    slow, twin = record["comparisons"]
    assert slow["verdict"] == "worse" and slow["level"] < 0.025
    assert twin["verdict"] == "no difference shown" and twin["difference"]["mean"] == 0 and twin["seeds"] == 5
    seeds = {name: {t["seed"] for t in record["trials"] if t["arm"] == name} for name in ("pre_norm", "slow", "twin")}
    assert seeds["pre_norm"] == seeds["twin"] == {0, 1, 2, 3, 4} and seeds["slow"] == set(range(slow["seeds"]))


def test_data_that_changed_are_refused(tmp_path: pathlib.Path) -> None:
    text = tmp_path / "own.txt"
    text.write_bytes(os.urandom(3000))
    study = lab.Study(**{**SMALL, "task": "text:length=8", "data": str(text), "seeds": 1, "lr": 1e-3})
    with pytest.raises(Stopped):
        lab.run(study, tmp_path / "s", workers=1, stop=lambda: True)
    text.write_bytes(os.urandom(3000))
    with pytest.raises(StudyError, match="not those that this study began with"):
        lab.resume(tmp_path / "s", workers=1)
