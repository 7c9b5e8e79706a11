"""What every kind of target is turned into."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from skipway._errors import TargetError

MOST_PARAMETERS = 300_000_000           # of a real copy with random weights: 1.2 GB of float32
RANDOM = "random"


@dataclass(frozen=True)
class Target:
    """A model, the inputs of one forward, and what a reader must know about how they were made."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str                                   # as the user wrote it
    notes: tuple[str, ...] = ()
    shrink: "Callable[[], Target | None] | None" = field(default=None, repr=False)
    full: "Callable[[], Target] | None" = field(default=None, repr=False)   # a real copy of full size, with the weights that `weights` names
    weights: str = ""                           # RANDOM, the files of a checkpoint, or "" where the target's own code made them
    inputs: str = RANDOM                        # RANDOM, or where the inputs come from
    folder: str | None = None                   # where files of the model lie: tokenizer.json, preprocessor_config.json, a GGUF file

    def shrunken(self) -> "Target | None":
        """A small real copy with random weights, for a forward that needs data; None where there is no way to make one."""
        return self.shrink() if self.shrink is not None else None

    def loaded(self) -> "Target | None":
        """The model with the weights of its checkpoint; None where it has none. Raises TargetError where they cannot be read."""
        return self._known(self.full()) if self.full is not None and self.weights not in ("", RANDOM) else None

    def with_numbers(self) -> "Target":
        """The model with numbers in it: as it is, with its checkpoint's weights, or a real copy with random ones, small where the model is large.

        Raises TargetError where there is none of these.
        """
        if not self.abstract:
            return self
        made = self.loaded()
        if made is None and self.full is not None and sum(p.numel() for p in self.model.parameters()) <= MOST_PARAMETERS:
            made = self.full()
        made = made if made is not None else self.shrunken()
        if made is None:
            raise TargetError(f"{self.name}: it holds no numbers and no small copy of it could be made; name a factory in a file that builds one "
                              "with weights")
        return self._known(made)

    def _known(self, made: "Target") -> "Target":
        """A real copy, with what is known of this target whatever its size."""
        return replace(made, weights=made.weights or self.weights, folder=self.folder, inputs=self.inputs)

    @property
    def abstract(self) -> bool:
        """True where the model holds no numbers (its parameters are on the meta device)."""
        return any(p.is_meta for p in self.model.parameters())
