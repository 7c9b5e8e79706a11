"""What a task is.

Legend of shapes: inputs of token tasks are (batch, token) of int64; of others (batch, token, feature) or (batch, feature). Targets are int64, (batch,
token) or (batch,), with IGNORE where there is no loss. Outputs of a model have one axis more, the classes.
"""

import difflib
import hashlib
import inspect
import math
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skipway._errors import StudyError

IGNORE = -100
HELD_OUT = "held_out"
TRAIN = "train"


class Batch(NamedTuple):
    """Rows of a data stream."""

    inputs: Tensor
    targets: Tensor


class Task:
    """Base of all tasks. A subclass is a leaf: it gives `build` (its keyword arguments are the task's options), `draw`, `embed` and the class facts.

    Data are a function of (seed, step, split) alone, whatever the variant, the machine or what was drawn before.
    """

    sublayers: ClassVar[tuple[str, ...]] = ("self_attention", "ffn")    # of a block: roles of the schemes; "dense" for a plain layer
    causal: ClassVar[bool] = True                                       # whether attention sees earlier tokens only
    defaults: ClassVar[dict[str, Any]] = {}                             # fields of a study that fit the task
    score_name: ClassVar[str] = "accuracy"                              # of the held-out metric, higher is better
    reads_data: ClassVar[bool] = False                                  # whether it takes a data file
    together: ClassVar[bool] = False                                    # whether seeds in one stack were measured to train faster (decision 0011)
    classes: int                # width of the output
    vocabulary: int | None = None       # number of input tokens; None for inputs that are no tokens
    length: int = 1             # tokens of a row
    features: int | None = None         # width of an input that is no token
    side: int | None = None     # pixels of a side, where the inputs are pieces of a square picture
    patch: int = 1              # pixels of a piece's side

    def __init__(self, *, data: str | None = None, **options: Any) -> None:
        known = {k: p.default for k, p in inspect.signature(self.build).parameters.items()}
        for key in options:
            if key not in known:
                found = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {found[0]}?" if found else f"it has {', '.join(known) or 'none'}"
                raise StudyError(f"task {self.name()} has no option {key!r}; {hint}")
            if known[key] is not None and not isinstance(options[key], type(known[key])):
                raise StudyError(f"task {self.name()}: {key} is {options[key]!r}; want a value like {known[key]!r}")
        if data is not None and not self.reads_data:
            raise StudyError(f"task {self.name()} reads no data file; leave --data out, or take the task text")
        self.data, self.options = data, {**known, **options}
        self.build(**options)

    @classmethod
    def name(cls) -> str:
        """The name in the registry."""
        return cls.__module__.rpartition(".")[2]

    def build(self) -> None:
        """Takes the options and prepares the data; sets classes, vocabulary, length and features. Raises StudyError."""

    def draw(self, split: str, generator: torch.Generator, size: int) -> Batch:
        """`size` rows of a split, "train" or "held_out", that depend on the generator alone."""
        raise NotImplementedError

    def batch(self, split: str, seed: int, step: int, size: int) -> Batch:
        """The rows of one step. Those of the held-out split are the same for every seed."""
        generator = torch.Generator().manual_seed(seed_of(self.name(), split, 0 if split == HELD_OUT else seed, step))
        return self.draw(split, generator, size)

    def embed(self, width: int) -> nn.Module:
        """The module from inputs to the stream's start, (batch, token, width) or (batch, width)."""
        raise NotImplementedError

    def head(self, width: int) -> nn.Module:
        """The module from the last state to outputs."""
        return nn.Linear(width, self.classes)

    def pictures(self, inputs: Tensor) -> Tensor:
        """The inputs as pictures, (batch, channel, side, side), for models that read such. Only where `side` is set."""
        raise NotImplementedError

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Mean cross entropy over the targets, in nats."""
        return F.cross_entropy(outputs.flatten(0, -2).float(), batch.targets.flatten(), ignore_index=IGNORE)

    def score(self, outputs: Tensor, batch: Batch) -> float:
        """Share of targets whose largest output is theirs."""
        kept = batch.targets != IGNORE
        return float((outputs.argmax(-1) == batch.targets)[kept].double().mean())

    def chance(self) -> float:
        """Loss of a guess that knows nothing."""
        return math.log(self.classes)


def seed_of(*parts: Any) -> int:
    """A seed that depends on its parts alone."""
    return int.from_bytes(hashlib.sha256("|".join(map(str, parts)).encode()).digest()[:8], "big") >> 1
