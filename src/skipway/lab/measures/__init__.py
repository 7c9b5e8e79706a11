"""Numbers that a study may ask for besides those that every trial records, one a file, found by file name.

A member's `value(look)` gives a number at a probed step, or None where the model has nothing of the kind or the number is not finite. Other
distributions add measures with an entry point of the group `skipway.lab.measures`.
"""

from types import ModuleType

from skipway import _registry
from skipway.lab._names import near
from skipway.lab.measures._base import Look as Look


def names() -> tuple[str, ...]:
    """Names of all measures, sorted, without importing them."""
    return _registry.spelled(__name__)


def load(name: str) -> ModuleType:
    """A measure's module. Raises StudyError with the nearest names."""
    if name.replace("-", "_") not in names():
        raise near(name, names(), "measure")
    return _registry.load(__name__, name.replace("_", "-"))
