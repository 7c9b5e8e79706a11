"""Where trials run, one engine a file, found by file name. Other distributions add engines with an entry point of the group `skipway.lab.engines`.

A member's `open_engine(workers, log, **options)` gives an `Engine`: a context whose `run` works a list of jobs off. `workers` is None where nobody
said how many. A member that needs more than the extra `lab` has `check()`, which raises UsageError with what to install. One that does not run every
arm has `fits(arms, rates, task)`, which raises StudyError before a study begins. One whose numbers differ in the last digits from those of a trial
that a worker runs by itself names its way of computing in `ARITHMETIC`; a study is of one such kind from its start to its end.
"""

from types import ModuleType

from skipway import _registry
from skipway.lab._names import near
from skipway.lab.engines._base import Engine as Engine
from skipway.lab.engines._base import Event as Event
from skipway.lab.engines._base import Job as Job


def names() -> tuple[str, ...]:
    """Names of all engines."""
    return _registry.names(__name__)


def arithmetic(name: str) -> str:
    """How an engine computes: two of the same kind give the same numbers to the last bit."""
    return str(getattr(load(name), "ARITHMETIC", "apart"))


def load(name: str) -> ModuleType:
    """An engine's module. Raises StudyError with the nearest names, UsageError where what it needs is not installed."""
    if name not in names():
        raise near(name, names(), "engine")
    module = _registry.load(__name__, name)
    if hasattr(module, "check"):
        module.check()
    return module
