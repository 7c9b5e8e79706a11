"""What a variant may be, one kind a file, found by file name.

A member gives
    takes(named)                whether a text of the form "name:key=value" is one of its kind
    known()                     its names, for the hint at an unknown one
    fields(named)               those of `records.Arm` that tell it: scheme, options, factory, model. Raises StudyError for an unknown option
    build(arm, task, seed)      the model as a trial with this seed begins. Raises StudyError or SchemeError
    FIXED                       fields of a study that it does not follow, so that they cannot be factors across it
    TAKES                       fields of a study that it alone stands on, handed to its arms under the same name; without the attribute, none
Other distributions add kinds with an entry point of the group `skipway.lab.variants`.
"""

from types import ModuleType

from skipway import _registry
from skipway.lab._names import Named, near


def names() -> tuple[str, ...]:
    """Names of all kinds."""
    return _registry.names(__name__)


def load(name: str) -> ModuleType:
    """A kind's module."""
    return _registry.load(__name__, name)


def kind(named: Named) -> str:
    """The kind of a variant. Raises StudyError with the nearest names."""
    for name in names():
        if load(name).takes(named):
            return name
    raise near(named.name, [known for name in names() for known in load(name).known()], "variant")
