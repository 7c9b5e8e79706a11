"""Worker processes of this machine, kept from one `run` to the next, since starting one takes seconds. An order is one job, or several as one."""

import json
import pathlib
import queue
from collections.abc import Callable, Sequence
from typing import Any

from skipway.lab.engines._base import LAST, Event, Job
from skipway.lab.engines._process import Process
from skipway.lab.records import Trial

WAIT = 0.2              # seconds until `stop` is asked again


class Pool:
    """A context; `work` gives each order to a worker of its own and passes on what is said of each job."""

    stacked = False         # whether the jobs of an order, also of one, are trained as one stack

    def __init__(self, workers: int, log: pathlib.Path, threads: int) -> None:
        self.most, self.path, self.threads = workers, log, threads
        self.said: queue.Queue[tuple[Process, dict[str, Any] | None]] = queue.Queue()
        self.idle: list[Process] = []
        self.busy: dict[Process, dict[int, Trial]] = {}             # by seed, those of which the last word is not yet said

    def __enter__(self) -> "Pool":
        self.log = open(self.path, "ab")
        return self

    def __exit__(self, *error: Any) -> None:
        for worker in (*self.idle, *self.busy):
            worker.end()
        self.log.close()

    def work(self, orders: Sequence[Sequence[Job]], tell: Callable[[Event], None], stop: Callable[[], bool]) -> None:
        """Works the orders off in turn; jobs of one order differ in their seeds alone, and its first is told last."""
        left, asked = list(reversed(orders)), False
        while left or self.busy:
            if not asked and stop():
                asked = True
                left.clear()
                for worker in self.busy:
                    worker.write("stop")
            while left and len(self.busy) < self.most:
                self._give(left.pop())
            try:
                worker, event = self.said.get(timeout=WAIT)
            except queue.Empty:
                continue
            if worker in self.busy:
                self._heard(worker, event, tell)
            elif event is None and worker in self.idle:
                self.idle.remove(worker)

    def _give(self, order: Sequence[Job]) -> None:
        worker = self.idle.pop() if self.idle else Process(self.threads, self.log, self.said)
        self.busy[worker] = {job.trial.seed: job.trial for job in order}
        worker.write(json.dumps({"jobs": [job.to_dict() for job in order]} if self.stacked else order[0].to_dict()))

    def _heard(self, worker: Process, event: dict[str, Any] | None, tell: Callable[[Event], None]) -> None:
        trials = self.busy[worker]
        if event is None:
            del self.busy[worker]
            why = worker.ended()
            for trial in reversed(trials.values()):
                tell(Event("lost", trial, reason=why))
            return
        seed = event.pop("seed") if self.stacked else next(iter(trials))
        trial = trials.pop(seed) if event["kind"] in LAST else trials[seed]
        if not trials:
            del self.busy[worker]
            self.idle.append(worker)
        tell(Event(trial=trial, **event))
