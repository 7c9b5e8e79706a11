"""local: worker processes of this machine, one thread each; as many as it has cores."""

import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import IO, Any

from skipway.lab.engines._base import Event, Job
from skipway.lab.records import Trial

WAIT = 0.2              # seconds until `stop` is asked again
PATIENCE = 60.0         # seconds that a worker gets to end its step


def open_engine(workers: int, log: pathlib.Path, threads: int = 1) -> "Local":
    """`workers` processes of `threads` threads; what they print goes to the file `log`."""
    return Local(workers, log, threads)


class Local:
    """Keeps its workers from one `run` to the next, since starting one takes seconds."""

    def __init__(self, workers: int, log: pathlib.Path, threads: int) -> None:
        self.most, self.path, self.threads = max(1, workers), log, threads
        self.said: queue.Queue[tuple[_Worker, dict[str, Any] | None]] = queue.Queue()
        self.idle: list[_Worker] = []
        self.busy: dict[_Worker, Trial] = {}

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
        worker = self.idle.pop() if self.idle else _Worker(self.threads, self.log, self.said)
        self.busy[worker] = job.trial
        worker.write(json.dumps(job.to_dict()))

    def _heard(self, worker: "_Worker", event: dict[str, Any] | None, tell: Callable[[Event], None]) -> None:
        trial = self.busy[worker]
        if event is None:
            del self.busy[worker]
            tell(Event("lost", trial, reason=worker.ended()))
            return
        if event["kind"] in ("ended", "stopped", "full"):
            del self.busy[worker]
            self.idle.append(worker)
        tell(Event(trial=trial, **event))


class _Worker:
    """One process, and the thread that reads what it says."""

    def __init__(self, threads: int, log: IO[bytes], said: "queue.Queue[tuple[_Worker, dict[str, Any] | None]]") -> None:
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "skipway.lab._worker", str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            encoding="utf-8", env={**os.environ, **dict.fromkeys(names, str(threads))}, start_new_session=True)
        threading.Thread(target=self._read, args=(said,), daemon=True).start()

    def _read(self, said: "queue.Queue[tuple[_Worker, dict[str, Any] | None]]") -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said.put((self, json.loads(line)))
        said.put((self, None))

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return                          # it has ended, which its reader tells

    def ended(self) -> str:
        """Why the process is gone, in words."""
        code = self.process.wait()
        if code >= 0:
            return f"its worker ended with status {code}; see the log of the workers"
        name = signal.Signals(-code).name
        return f"its worker was ended by {name}" + (", as the system does when memory runs out" if name == "SIGKILL" else "")

    def end(self) -> None:
        """Closes its orders, which ends it; after a minute, kills it."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(PATIENCE)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self.process.kill()
            self.process.wait()
