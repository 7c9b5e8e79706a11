"""What can be done at a site, one action a file, found by file name. An action is an ordinary module, and its name a method of a selection."""

from skipway import _registry
from skipway._errors import RewireError
from skipway.surgery._action import Action


def names() -> tuple[str, ...]:
    """Names of all actions, sorted, without importing them."""
    return _registry.spelled(__name__)


def load(name: str) -> type[Action]:
    """The class of an action. Raises RewireError with the nearest names."""
    if name not in names():
        raise RewireError(f"rewire: unknown action {name!r}; {_registry.hint(name, names())}")
    return _registry.leaf(__name__, name, Action)


def describe(name: str) -> str:
    """The first line of an action's page: what it makes of the join."""
    return (_registry.load(__name__, name.replace("_", "-")).__doc__ or "").partition("\n")[0].partition(": ")[2]
