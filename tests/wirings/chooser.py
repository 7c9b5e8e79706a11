"""The one source of choices: a seeded generator and a hypothesis strategy both give a `pick`."""

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class Chooser:
    """Picks from sequences; the simplest option stands first, so that a failing wiring shrinks towards it."""

    def __init__(self, pick: Callable[[Sequence[Any]], Any]) -> None:
        self._pick = pick

    def one(self, options: Sequence[T]) -> T:
        """One of the options."""
        chosen: T = self._pick(options)
        return chosen

    def number(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return self.one(range(low, high + 1))

    def rarely(self, one_in: int) -> bool:
        """True once in `one_in` draws."""
        return self.number(0, one_in - 1) == one_in - 1


def seeded(seed: int) -> Chooser:
    """Choices of a seeded generator."""
    return Chooser(random.Random(seed).choice)
