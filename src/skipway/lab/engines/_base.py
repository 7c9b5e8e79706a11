"""What an engine is: it takes jobs and tells events. Both are plain records, so that they cross any border as JSON."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from skipway.lab.records import Arm, Trial, record

KINDS = ("began", "step", "ended", "stopped", "lost", "full", "again")
LAST = ("ended", "stopped", "full")         # after these the worker is free


@dataclass(frozen=True)
class Job:
    """One trial to run."""

    arm: Arm
    trial: Trial
    checkpoint: str             # path of its checkpoint file, which need not be there yet

    def to_dict(self) -> dict[str, Any]:
        return {"arm": {**asdict(self.arm), "wiring": {}}, "trial": asdict(self.trial), "checkpoint": self.checkpoint}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Job":
        return cls(record(Arm, data["arm"]), record(Trial, data["trial"]), data["checkpoint"])


@dataclass(frozen=True)
class Event:
    """What happened to a job.

    began; step: `step` done at `loss`; ended: `outcome` (finished, diverged or failed); stopped: its checkpoint is written; lost: its worker ended
    without a word (`reason`); full: the disk takes no checkpoint (`reason`); again: its worker was lost (`reason`), and it waits for another one.
    """

    kind: str                                   # one of KINDS
    trial: Trial
    step: int = 0
    loss: float = float("nan")
    outcome: dict[str, Any] | None = None       # `Outcome.to_dict()`
    reason: str = ""


class Engine(Protocol):
    """A context, entered once a study; `run` may be called several times in it."""

    def __enter__(self) -> "Engine": ...

    def __exit__(self, *error: Any) -> None: ...

    def run(self, jobs: Sequence[Job], tell: Callable[[Event], None], stop: Callable[[], bool]) -> None:
        """Works the jobs off in their order, as many at once as it has workers, and tells every event in the calling thread.

        When `stop` turns true no job begins any more, and running ones stop at their next step. Returns when nothing runs.
        """
        ...
