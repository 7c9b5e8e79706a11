"""What every kind of target is turned into."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Target:
    """A model, the inputs of one forward, and what a reader must know about how they were made."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str                                   # as the user wrote it
    notes: tuple[str, ...] = ()
    shrink: "Callable[[], Target | None] | None" = field(default=None, repr=False)

    def shrunken(self) -> "Target | None":
        """A small real copy with random weights, for a forward that needs data; None where there is no way to make one."""
        return self.shrink() if self.shrink is not None else None

    @property
    def abstract(self) -> bool:
        """True where the model holds no numbers (its parameters are on the meta device)."""
        return any(p.is_meta for p in self.model.parameters())
