"""Tasks of a comparison, one a file, found by file name: a data stream, a model's input and output, a loss and a held-out metric.

    skipway.lab.tasks.names()                   every task
    skipway.lab.tasks.build("copy:length=16")   one, with options
    skipway.lab.tasks.build("file.py:task")     one's own: a Task, a class of one, or a function that returns one

Other distributions add tasks with an entry point of the group `skipway.lab.tasks`.
"""

import inspect
from typing import Any

from skipway import _registry
from skipway._errors import StudyError
from skipway._load import attribute, call, load_module
from skipway.lab._names import Named, near, parse
from skipway.lab.tasks._base import IGNORE as IGNORE
from skipway.lab.tasks._base import Batch as Batch
from skipway.lab.tasks._base import Task as Task


def names() -> tuple[str, ...]:
    """Names of all tasks, sorted, without importing them."""
    return _registry.spelled(__name__)


def load(name: str) -> type[Task]:
    """The class of a task. Raises StudyError with the nearest names."""
    if name.replace("-", "_") not in names():
        raise near(name, names(), "task")
    return _registry.leaf(__name__, name, Task)


def build(text: str, data: str | None = None) -> Task:
    """The task that a text names. Raises StudyError, one line, where it or its data cannot be had."""
    named = parse(text, "task")
    made = _own(named) if named.file else load(named.name)
    if isinstance(made, Task):
        if named.options or data:
            raise StudyError(f"task {text}: {named.name} is a task that is built, so it takes neither options nor data; name its class or a function")
        return made
    return _called(made, named, data, text)


def _own(named: Named) -> Any:
    path, name = named.name.rsplit(":", 1)
    value = attribute(load_module(path), name, named.name)
    if not (isinstance(value, Task) or callable(value)):
        raise StudyError(f"task {named}: got {type(value).__name__}, want a Task, a class of one, or a function that returns one")
    return value


def _called(make: Any, named: Named, data: str | None, text: str) -> Task:
    if inspect.isclass(make) and issubclass(make, Task):
        return make(data=data, **named.options)
    given = {**named.options, **({"data": data} if data else {})}
    made = call(lambda: make(**given), text)
    if not isinstance(made, Task):
        raise StudyError(f"task {text}: it returned {type(made).__name__}, want a Task of skipway.lab.tasks")
    return made
