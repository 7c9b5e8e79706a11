"""From a command-line target to a model and its inputs.

A kind of target is a file of this folder, found by its name: `hf:llama` is built by `hf.py`. What has no known kind in front of
its colon is a Python object, `path/file.py:attr` or `package.module:attr`.
"""

from collections.abc import Sequence

from skipway._registry import load, names
from skipway.targets._given import given_inputs as given_inputs
from skipway.targets._target import Target as Target


def kinds() -> tuple[str, ...]:
    """Names of all kinds of target."""
    return names(__name__)


def resolve(text: str, *, inputs: Sequence[str] = (), inputs_from: str | None = None, config: Sequence[str] = ()) -> Target:
    """The model and inputs that `text` names.

    inputs: texts like "x=float32[2,3,224,224]". inputs_from: "file.py:function". config: texts like "num_hidden_layers=126".
    Raises TargetError, one line, where anything of it cannot be had.

    >>> resolve("hf:llama", config=["num_hidden_layers=2"]).name
    'hf:llama'
    """
    head, colon, rest = text.partition(":")
    kind = head if colon and head in kinds() else "python-object"
    given = given_inputs(inputs, inputs_from)
    target: Target = load(__name__, kind).build(rest if kind == head else text, given, tuple(config))
    return target
