"""together: the local engine's workers, and in each the seeds of one variant and learning rate, trained at once as one stack.

Faster where a step is many small operations (docs/decisions/0011). Rows, starts and the steps of the optimizer are
those of the local engine; numbers agree with its own in all but the last digits, so that a study is of one kind from its start to its end.
"""

import collections
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from skipway.lab.engines._base import Event, Job
from skipway.lab.engines._pool import Pool
from skipway.lab.records import Arm
from skipway.lab.tasks import Task

ARITHMETIC = "together"


def fits(arms: Iterable[Arm], rates: Mapping[str, Sequence[float]], task: Task) -> None:
    """Raises StudyError, one line, for the first arm whose seeds do not train in a stack as they do alone."""
    from skipway.lab import _cost, _together
    with _cost.one_thread():
        for arm in arms:
            _together.check(arm, task, rates[arm.name][0])


def open_engine(workers: int | None, log: pathlib.Path, threads: int = 1) -> "Stacks":
    """`workers` processes of `threads` threads, by default one a core; what they print goes to the file `log`."""
    return Stacks(workers or os.cpu_count() or 1, log, threads)


class Stacks(Pool):
    """A stack a worker. Its checkpoint lies at its first job's place and names its seeds: a stack that goes on is the one that began."""

    stacked = True

    def run(self, jobs: Sequence[Job], tell: Callable[[Event], None], stop: Callable[[], bool]) -> None:
        self.work(stacks(jobs, self.most), tell, stop)


def stacks(jobs: Sequence[Job], workers: int) -> list[list[Job]]:
    """Jobs of one arm and rate together, in the order in which each pair comes first; in parts, where there are fewer pairs than workers."""
    cells: dict[tuple[str, float], list[Job]] = collections.defaultdict(list)
    for job in sorted(jobs, key=lambda j: j.trial.seed):
        cells[job.trial.arm, job.trial.lr].append(job)
    made: list[list[Job]] = []
    for cell in sorted(cells, key=[(j.trial.arm, j.trial.lr) for j in jobs].index):
        begun, fresh = _begun(cells[cell])
        parts = min(len(fresh), -(-workers // len(cells)))
        made += begun + [fresh[len(fresh) * k // parts:len(fresh) * (k + 1) // parts] for k in range(parts)]
    return made


def _begun(cell: list[Job]) -> tuple[list[list[Job]], list[Job]]:
    """Stacks that have a checkpoint, and the jobs that are in none of them."""
    from skipway.lab import _checkpoint
    found, left = [], {job.trial.seed: job for job in cell}
    for job in cell:
        path = pathlib.Path(job.checkpoint)
        if job.trial.seed in left and path.exists():
            seeds = _checkpoint.peek(path).get("seeds", [job.trial.seed])
            found.append([left.pop(seed) for seed in seeds if seed in left])
    return found, list(left.values())
