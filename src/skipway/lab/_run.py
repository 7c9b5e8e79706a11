"""Runs a study: plan, store, engine, report; and goes on with one that was stopped or killed."""

import os
import pathlib
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from skipway._errors import StoreError, StudyError
from skipway.lab import _machine, _report, engines
from skipway.lab._analysis import comparisons
from skipway.lab._lock import Lock
from skipway.lab._plan import Plan, fingerprint, plan
from skipway.lab._store import FILE, Store, full
from skipway.lab._study import Study
from skipway.lab.engines import Event, Job
from skipway.lab.records import Outcome, Trial
from skipway.lab.stats import Design
from skipway.lab.tasks import build as build_task

Tell = Callable[[Event], None]
Stop = Callable[[], bool]
Files = Callable[[dict[str, Any]], Iterable[tuple[str, bytes]]]
CHECKPOINTS, LOG = "checkpoints", "workers.log"


class Stopped(Exception):
    """The study was stopped between two steps; what is done is kept."""


def run(study: Study | Plan, folder: str | pathlib.Path, *, engine: str = "local", workers: int | None = None, tell: Tell = lambda event: None,
        stop: Stop = lambda: False, files: Files = lambda record: (), **options: Any) -> dict[str, Any]:
    """Runs a study in a new folder; gives the report, of schema "skipway.compare/1", which also lies there as report.json.

    engine, workers, options: where and how many at once. tell: hears every event. stop: asked between steps. files: names and contents of further
    files to write there at the end; `skipway.report.comparison` gives report.html and the figures.
    Raises StudyError or SchemeError for what cannot be run, StoreError for the folder, Stopped after `stop` turned true.
    """
    place = engines.load(engine)
    free(pathlib.Path(folder))
    made = study if isinstance(study, Plan) else plan(study, workers or os.cpu_count() or 1)
    if hasattr(place, "fits"):
        place.fits(made.arms, made.rates, made.task)
    where = _made(pathlib.Path(folder))
    with Lock(where):
        last = made.study.max_seeds if made.study.until_decided else len(made.seeds)
        environment = {"engine": engine, "git": _machine.git(), "began": time.strftime("%Y-%m-%d %H:%M:%S"), **_machine.versions(made.study.device)}
        meta = {**made.meta(), "design": {"alpha": made.study.alpha, "first": len(made.seeds), "last": last}, "environment": environment}
        store = Store.create(where, meta, made.arms, made.trials)
        return _work(store, where, engine, place.open_engine(workers, where / LOG, **options), tell, stop, files)


def resume(folder: str | pathlib.Path, *, engine: str | None = None, workers: int | None = None, retry: bool = False,
           tell: Tell = lambda event: None, stop: Stop = lambda: False, files: Files = lambda record: (), **options: Any) -> dict[str, Any]:
    """Goes on with the study of a folder: finished trials stay, a running one restarts from its checkpoint. retry: failed ones run again, too.

    engine: None takes one that gives the same numbers as the study's own: the local one, or that itself where it is of another kind.
    Raises as `run` does, and StudyError where the task's data are no longer those that the study began with, or the engine's numbers are of another
    kind.
    """
    where = pathlib.Path(folder)
    if not where.is_dir():
        raise StoreError(f"{folder}: no such folder; give the folder that --out named")
    if engine is not None:
        engines.load(engine)
    with Lock(where):
        store = Store(where, write=True)
        engine = alike(store, engine, where)
        place = engines.load(engine)
        kept = store.meta("task")
        task = build_task(store.arms()[0].task, store.arms()[0].data)
        if fingerprint(task) != kept["fingerprint"]:
            raise StudyError(f"{folder}: the data of task {kept['name']} are not those that this study began with; bring them back, or start anew")
        store.waits(*store.trials("running", *(("failed",) if retry else ())))
        return _work(store, where, engine, place.open_engine(workers, where / LOG, **options), tell, stop, files)


def alike(store: Store, engine: str | None, folder: pathlib.Path) -> str:
    """An engine that gives the study's kind of numbers: this one, or one that fits. Raises StudyError where it is of another kind."""
    own = store.meta("environment").get("engine", "local")
    kind = engines.arithmetic(own)
    if engine is None:
        return "local" if kind == engines.arithmetic("local") else str(own)
    if engines.arithmetic(engine) != kind:
        raise StudyError(f"{folder}: its trials run on engine {own}, whose numbers differ in the last digits from those of {engine}; "
                         "leave --engine out")
    return engine


def free(folder: pathlib.Path) -> None:
    """Makes nothing. Raises StoreError where the folder holds a study, or shows already that it cannot be made or written."""
    if (folder / FILE).exists():
        raise StoreError(f"{folder}: it already holds a study; go on with --resume {folder}, or choose another folder with --out")
    there = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise StoreError(f"{there}: {'Permission denied' if there.is_dir() else 'Not a directory'}; choose a folder that may be written to")


def _made(folder: pathlib.Path) -> pathlib.Path:
    try:
        (folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}; choose a folder that may be written to") from error
    return folder


def _work(store: Store, folder: pathlib.Path, name: str, engine: engines.Engine, tell: Tell, stop: Stop, files: Files) -> dict[str, Any]:
    work = _Work(store, folder, name, tell, stop)
    try:
        _made(folder)
        work.tidy()
        with engine:
            while jobs := work.jobs():
                engine.run(jobs, work.heard, work.stopping)
                work.check()
        work.tidy()
        record = _report.made(store)
        _report.write(folder, record, files(record))
        return record
    finally:
        store.close()


class _Work:
    """What the main process does with events: it alone writes to the store."""

    def __init__(self, store: Store, folder: pathlib.Path, engine: str, tell: Tell, stop: Stop) -> None:
        self.store, self.folder, self.engine, self.tell, self.stop = store, folder, engine, tell, stop
        self.arms = {a.name: a for a in store.arms()}
        self.broken: BaseException | None = None
        self.halted = False

    def jobs(self) -> list[Job]:
        """Trials that wait; where there are none and the design is sequential, those of one seed more."""
        waiting = self.store.trials("waiting", "running") or self._one_more_seed()
        return [Job(self.arms[t.arm], t, str(self._checkpoint(t))) for t in waiting]

    def stopping(self) -> bool:
        self.halted = self.halted or self.stop()
        return self.halted or self.broken is not None

    def heard(self, event: Event) -> None:
        """Keeps what an event says. What goes wrong is raised once nothing runs any more."""
        try:
            self._keep(event)
        except StoreError as error:
            self.broken = self.broken or error
        self.tell(event)

    def _keep(self, event: Event) -> None:
        if event.kind == "began":
            self.store.began(event.trial)
        elif event.kind in ("stopped", "again"):
            self.store.waits(event.trial)
        elif event.kind == "full":
            self.broken = self.broken or full(self.folder)
            self.store.waits(event.trial)
        elif event.kind in ("ended", "lost"):
            outcome = Outcome.from_dict(event.outcome) if event.outcome else Outcome("failed", event.step, event.reason)
            self.store.ended(event.trial, replace(outcome, environment={"engine": self.engine, **outcome.environment}))
            if outcome.state != "failed":
                self._checkpoint(event.trial).unlink(missing_ok=True)

    def check(self) -> None:
        """Raises what went wrong, or Stopped."""
        if self.broken is not None:
            raise self.broken
        if self.halted:
            raise Stopped(str(self.folder))

    def tidy(self) -> None:
        """Removes what a kill leaves: a checkpoint half written, or one whose trial's end was stored a moment before."""
        kept = {self._checkpoint(t) for t in self.store.trials("waiting", "running", "failed")}
        for path in set((self.folder / CHECKPOINTS).iterdir()) - kept:
            path.unlink(missing_ok=True)            # a worker that outlives its killed parent by a moment may have moved it away

    def _checkpoint(self, trial: Trial) -> pathlib.Path:
        return self.folder / CHECKPOINTS / f"{trial.id}.safetensors"

    def _one_more_seed(self) -> list[Trial]:
        """In a sequential design: the next seed of every arm of a group that is not yet decided, at the rates of the first look."""
        design = Design(**self.store.meta("design"))
        if design.last <= design.first:
            return []
        outcomes = self.store.outcomes()
        seeds = {t.seed for t in self.store.trials()}
        arms = list(self.arms.values())
        fixed = self.store.meta("fixed_rates") or {}
        found = comparisons(arms, outcomes, design, fixed)
        if not fixed:
            fixed = {name: lr for c in found for name, lr in ((c.variant, c.lr), (c.baseline, c.baseline_lr)) if lr is not None}
            self.store.remember("fixed_rates", fixed)
        open_ = {name for c in found if not c.decided and c.seeds >= design.first for name in (c.variant, c.baseline)}
        if not open_ or len(seeds) >= design.last:
            return []
        more = [Trial(a.name, fixed[a.name], max(seeds) + 1) for a in arms if a.name in open_ and a.name in fixed]
        self.store.add(more)
        return more
