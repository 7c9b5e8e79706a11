"""The ray engine: results of the local one, lost workers, and what is said where ray or the cluster is missing."""

import importlib.util
import os
import pathlib
from typing import Any

import pytest

from skipway import lab
from skipway._errors import StudyError, UsageError
from skipway.lab import engines
from skipway.lab._store import Store
from skipway.lab.engines import Event, ray

STUDY: dict[str, Any] = {"task": "copy:symbols=4,length=3", "depth": 1, "width": 8, "heads": 2, "batch": 4, "steps": 250, "lr": 1e-2, "seeds": 2,
                         "held_out": 1, "checkpoint": 10, "probes": [0, 250]}
NETS = """
import os
from torch import nn


def plain(vocabulary, classes):
    return nn.Embedding(vocabulary, classes)


class Dies(nn.Embedding):
    calls = 0

    def __init__(self, vocabulary, classes):
        super().__init__(vocabulary, classes)

    def forward(self, x):
        self.calls += 1
        if self.calls > 15:
            os.kill(os.getpid(), 9)
        return super().forward(x)
"""
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")


def facts(folder: pathlib.Path) -> "dict[str, Any]":
    store = Store(folder)
    kept = {t.id: (o.state, o.step, o.final, o.points, o.depths, o.readouts) for t, o in store.outcomes().items()}
    store.close()
    return kept


class Killer:
    """Hears events, and ends one worker by SIGKILL: at first an actor, then the worker process of another one."""

    def __init__(self, apart: bool) -> None:
        self.apart, self.engine, self.kinds = apart, None, []
        self.killed: list[str] = []

    def opened(self, *words: Any, **options: Any) -> Any:
        self.engine = ray.Ray(*words, address=options.get("address"), threads=1)
        return self.engine

    def __call__(self, event: Event) -> None:
        import ray as cluster
        self.kinds.append(event.kind)
        if event.kind == "step" and 20 < event.step < 200 and event.trial.id not in self.killed and len(self.killed) < 2:
            actor = next(a for a, job in self.engine.busy.items() if job.trial == event.trial)
            about = cluster.get(actor.about.remote())
            os.kill(about["worker" if self.killed else "process"], 9)
            self.killed.append(event.trial.id)


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True])
def test_two_workers_one_killed_and_the_same_results(apart: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    """apart: as if the actors were on machines without the study's folder."""
    made = lab.plan(lab.Study(**STUDY), 2)
    lab.run(made, tmp_path / "local", workers=2)
    killer = Killer(apart)
    monkeypatch.setattr(ray, "open_engine", killer.opened)
    if apart:
        monkeypatch.setattr(ray, "_home", lambda: "elsewhere")
    capsys.readouterr()
    record = lab.run(made, tmp_path / "ray", engine="ray", workers=2, tell=killer)
    assert record["complete"] and facts(tmp_path / "ray") == facts(tmp_path / "local")
    assert len(killer.killed) == 2 and killer.kinds.count("again") == 2 and killer.kinds.count("ended") == 4
    store = Store(tmp_path / "ray")
    assert {t.id: o.resumed for t, o in store.outcomes().items() if o.resumed} == dict.fromkeys(killer.killed, 1)
    store.close()
    assert not list((tmp_path / "ray" / "checkpoints").iterdir())
    assert capsys.readouterr().out == "" and "lost the worker of Trial" in (tmp_path / "ray" / "workers.log").read_text()


@needs_ray
@pytest.mark.slow
def test_a_trial_that_kills_every_worker_is_a_row(tmp_path: pathlib.Path) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    names = [f"{tmp_path / 'nets.py'}:plain", f"{tmp_path / 'nets.py'}:Dies"]
    record = lab.run(lab.Study(**{**STUDY, "variants": names, "seeds": 1, "steps": 40, "probes": 0}), tmp_path / "s", engine="ray", workers=1)
    plain, dies = sorted(record["trials"], key=lambda t: t["arm"].endswith("Dies"))
    assert plain["state"] == "finished" and dies["state"] == "failed"
    assert dies["reason"].startswith("3 workers were lost with it; of the last: its worker was ended by SIGKILL")


def test_without_ray_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None)
    with pytest.raises(UsageError, match=r"engine ray needs ray, which is not installed; run: pip install 'skipway\[ray\]'"):
        lab.run(lab.Study(**STUDY), tmp_path / "s", engine="ray")
    assert not (tmp_path / "s").exists()


@needs_ray
def test_an_address_where_no_cluster_is(tmp_path: pathlib.Path) -> None:
    with pytest.raises(StudyError, match=r"no Ray cluster at 127\.0\.0\.1:1: .*refused.*; see `ray status`"), \
            engines.load("ray").open_engine(1, tmp_path / "log", address="127.0.0.1:1"):
        pass


def test_other_versions_on_a_node_are_refused() -> None:
    here = {**ray.installed(), "machine": "node7"}
    ray._same(here)
    with pytest.raises(StudyError, match=r"node node7 of the Ray cluster has torch 1\.0, and this process .*; install the same version"):
        ray._same({**here, "torch": "1.0"})


def test_an_engine_that_is_not_there() -> None:
    assert engines.names() == ("local", "ray", "together")
    with pytest.raises(StudyError, match="ray"):
        engines.load("rey")
