"""The process that runs trials: `python -m skipway.lab._worker THREADS`. A job comes as a line of JSON on stdin, events go out as lines on stdout.

The line "stop" ends the running trial at its next step. The end of stdin means that whoever gave the jobs is gone: then nothing is written any more.
"""

import functools
import io
import json
import os
import pathlib
import queue
import signal
import sys
import threading
import time
import traceback
from typing import Any

from skipway.lab._store import FULL
from skipway.lab.engines._base import Job
from skipway.lab.records import Outcome

OFTEN = 0.2             # seconds between two reports of a running trial


class Orders:
    """Lines from stdin, read beside the training."""

    def __init__(self) -> None:
        self.jobs: queue.Queue[str] = queue.Queue()
        self.stop = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            if line.strip() == "stop":
                self.stop.set()
            else:
                self.stop.clear()           # a stop is for the jobs that came before it, also for one that has not begun
                self.jobs.put(line)
        os._exit(0)             # also in the middle of a step: a checkpoint is moved into place or it is not


def main(threads: int) -> None:
    """Works until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)            # the parent decides what an interrupt means
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)                                           # what a user's model prints goes to the log, not between the events
    orders = Orders()
    from skipway.lab._machine import settings
    settings(threads)
    while True:
        order = json.loads(orders.jobs.get())
        if "jobs" in order:
            _stack([Job.from_dict(job) for job in order["jobs"]], orders, out)
        else:
            _say(out, **_worked(Job.from_dict(order), orders, out))


def _worked(job: Job, orders: Orders, out: io.TextIOBase) -> dict[str, Any]:
    """The last event of a job."""
    from skipway.lab import _trial
    last, at = 0.0, 0

    def tell(step: int, loss: float) -> None:
        nonlocal last, at
        now, at = time.monotonic(), step
        if now - last > OFTEN:
            last = now
            _say(out, kind="step", step=step, loss=loss)

    _say(out, kind="began")
    try:
        outcome = _trial.run(job.arm, job.trial, _task(job.arm.task, job.arm.data), pathlib.Path(job.checkpoint), tell, orders.stop.is_set)
        return {"kind": "stopped"} if outcome is None else {"kind": "ended", "outcome": outcome.to_dict()}
    except Exception as error:
        return _raised(error, at)


def _stack(jobs: list[Job], orders: Orders, out: io.TextIOBase) -> None:
    """The same for jobs that differ in their seeds alone, trained as one stack: every event names its seed.

    The first job's last event comes behind all others: as long as it has not ended, the study keeps its checkpoint, which is that of the stack.
    """
    from skipway.lab import _together
    last, at, first, seeds = 0.0, 0, jobs[0], [job.trial.seed for job in jobs]

    def tell(step: int, losses: dict[int, float]) -> None:
        nonlocal last, at
        now, at = time.monotonic(), step
        if now - last > OFTEN:
            last = now
            for seed in seeds:
                if seed in losses:
                    _say(out, kind="step", step=step, loss=losses[seed], seed=seed)

    for seed in seeds:
        _say(out, kind="began", seed=seed)
    try:
        task, path = _task(first.arm.task, first.arm.data), pathlib.Path(first.checkpoint)
        found = _together.run(first.arm, [job.trial for job in jobs], task, path, tell, orders.stop.is_set)
        said = {s: {"kind": "stopped"} if found is None else {"kind": "ended", "outcome": found[s].to_dict()} for s in seeds}
    except Exception as error:
        said = dict.fromkeys(seeds, _raised(error, at))
    for seed in reversed(seeds):
        _say(out, seed=seed, **said[seed])


def _raised(error: Exception, step: int) -> dict[str, Any]:
    """The last event of a job that raised: the whole trace goes to the log."""
    traceback.print_exception(error)
    if isinstance(error, OSError) and error.errno in FULL:
        return {"kind": "full", "reason": error.strerror}
    return {"kind": "ended", "outcome": Outcome("failed", step, why(error)).to_dict()}


@functools.lru_cache(maxsize=1)
def _task(text: str, data: str | None) -> Any:
    """The task, kept from one job to the next: its data may take seconds to prepare."""
    from skipway.lab.tasks import build
    return build(text, data)


def why(error: BaseException) -> str:
    """One line for a trial that raised."""
    said = (str(error).strip().splitlines() or [""])[0]
    words = ("out of memory", "can't allocate memory", "not enough memory")
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or any(w in str(error) for w in words):
        return f"out of memory: {said}" if said else "out of memory"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _say(out: io.TextIOBase, **event: Any) -> None:
    out.write(json.dumps(event) + "\n")
    out.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
