"""From a command-line target to a model and its inputs.

A kind of target is a file of this folder, found by its name: `hf:llama` is built by `hf.py`. What has no known kind in front of
its colon is a Python object, `path/file.py:attr` or `package.module:attr`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from skipway._registry import load, names
from skipway.targets._given import given_inputs as given_inputs
from skipway.targets._seed import seeded
from skipway.targets._target import Target as Target

T = TypeVar("T")


def kinds() -> tuple[str, ...]:
    """Names of all kinds of target."""
    return names(__name__)


def resolve(text: str, *, inputs: Sequence[str] = (), inputs_from: str | None = None, config: Sequence[str] = (), seed: int = 0) -> Target:
    """The model and inputs that `text` names.

    inputs: texts like "x=float32[2,3,224,224]". inputs_from: "file.py:function". config: texts like "num_hidden_layers=126". seed: of random
    inputs and random weights.
    Raises TargetError, one line, where anything of it cannot be had.

    >>> resolve("hf:llama", config=["num_hidden_layers=2"]).name
    'hf:llama'
    """
    head, colon, rest = text.partition(":")
    kind = head if colon and head in kinds() else "python-object"
    with seeded(seed):
        given = given_inputs(inputs, inputs_from)
        target: Target = load(__name__, kind).build(rest if kind == head else text, given, tuple(config))
    if inputs_from:
        target = replace(target, inputs=f"from {inputs_from}")
    return replace(target, shrink=_with_seed(target.shrink, seed), full=_with_seed(target.full, seed))


def _with_seed(make: Callable[[], T] | None, seed: int) -> Callable[[], T] | None:
    def made() -> T:
        assert make is not None
        with seeded(seed):
            return make()
    return made if make is not None else None
