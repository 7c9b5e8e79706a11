"""local: worker processes of this machine, one thread each; as many as it has cores. Each trial is trained by itself."""

import os
import pathlib
from collections.abc import Callable, Sequence

from skipway.lab.engines._base import Event, Job
from skipway.lab.engines._pool import Pool


def open_engine(workers: int | None, log: pathlib.Path, threads: int = 1) -> "Local":
    """`workers` processes of `threads` threads, by default one a core; what they print goes to the file `log`."""
    return Local(workers or os.cpu_count() or 1, log, threads)


class Local(Pool):
    """A trial a worker."""

    def run(self, jobs: Sequence[Job], tell: Callable[[Event], None], stop: Callable[[], bool]) -> None:
        self.work([[job] for job in jobs], tell, stop)
