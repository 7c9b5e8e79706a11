"""local: worker processes of this machine, one thread each; as many as it has cores."""

import json
import os
import pathlib
import queue
from collections.abc import Callable, Sequence
from typing import Any

from skipway.lab.engines._base import LAST, Event, Job
from skipway.lab.engines._process import Process
from skipway.lab.records import Trial

WAIT = 0.2              # seconds until `stop` is asked again


def open_engine(workers: int | None, log: pathlib.Path, threads: int = 1) -> "Local":
    """`workers` processes of `threads` threads, by default one a core; what they print goes to the file `log`."""
    return Local(workers or os.cpu_count() or 1, log, threads)


class Local:
    """Keeps its workers from one `run` to the next, since starting one takes seconds."""

    def __init__(self, workers: int, log: pathlib.Path, threads: int) -> None:
        self.most, self.path, self.threads = workers, log, threads
        self.said: queue.Queue[tuple[Process, dict[str, Any] | None]] = queue.Queue()
        self.idle: list[Process] = []
        self.busy: dict[Process, Trial] = {}

    def __enter__(self) -> "Local":
        self.log = open(self.path, "ab")
        return self

    def __exit__(self, *error: Any) -> None:
        for worker in (*self.idle, *self.busy):
            worker.end()
        self.log.close()

    def run(self, jobs: Sequence[Job], tell: Callable[[Event], None], stop: Callable[[], bool]) -> None:
        left, asked = list(reversed(jobs)), False
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

    def _give(self, job: Job) -> None:
        worker = self.idle.pop() if self.idle else Process(self.threads, self.log, self.said)
        self.busy[worker] = job.trial
        worker.write(json.dumps(job.to_dict()))

    def _heard(self, worker: Process, event: dict[str, Any] | None, tell: Callable[[Event], None]) -> None:
        trial = self.busy[worker]
        if event is None:
            del self.busy[worker]
            tell(Event("lost", trial, reason=worker.ended()))
            return
        if event["kind"] in LAST:
            del self.busy[worker]
            self.idle.append(worker)
        tell(Event(trial=trial, **event))
