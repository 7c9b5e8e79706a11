"""What every rule file shares: its examples (`Example`), what it reads (`Facts`) and what it says (`Hit`)."""

from dataclasses import dataclass, field
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Example:
    """A small model that shows one rule, with the inputs and declarations to check it with.

    model is called as model(*args). where is the part of a module path that a finding must name; "" where the model itself is
    meant. options are keyword arguments of `skipway.check`; under the key "expect" stands a dictionary of Expect's fields.
    """

    model: nn.Module
    args: tuple[Any, ...]
    where: str = ""
    options: dict[str, Any] = field(default_factory=dict)


class Facts:
    """What was recovered of one model."""


@dataclass(frozen=True)
class Hit:
    """One place where a rule fires."""

    where: str
    message: str
