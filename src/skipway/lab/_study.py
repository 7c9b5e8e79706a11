"""What a study is asked to do, checked field by field. A field that is a list is a factor: its values cross all variants."""

import difflib
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from skipway.lab import presets

T = TypeVar("T")
Many: TypeAlias = T | list[T]
Positive = Annotated[int, Field(gt=0)]
Natural = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Norm = Literal["layer_norm", "rms_norm"]
Initial = Literal["lecun", "xavier", "he", "small"]
Dtype = Literal["float32", "float64", "bfloat16"]
Optimizer = Literal["adamw", "sgd", "muon"]
Schedule = Literal["constant", "cosine", "linear"]
FACTORS = ("depth", "width", "norm", "warmup", "init", "dtype", "batch", "optimizer")
STRICT = ConfigDict(extra="forbid", frozen=True)


class Variant(BaseModel):
    """A scheme, model or factory with fields of its own."""

    model_config = STRICT
    variant: str                            # "hyper:lanes=4", "gpt2" or "file.py:factory"
    name: str | None = None
    depth: Positive | None = None
    width: Positive | None = None
    heads: Positive | None = None
    norm: Norm | None = None
    lr: list[Rate] | None = None
    warmup: Natural | None = None
    init: Initial | None = None
    dtype: Dtype | None = None
    batch: Positive | None = None
    optimizer: Optimizer | None = None
    schedule: Schedule | None = None
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    clip: Rate | Literal["none"] | None = None


class Study(BaseModel):
    """A comparison. What is None takes the task's own default, or the general one."""

    model_config = STRICT
    task: str = "copy"                                  # name, name:key=value or file.py:task
    model: str | None = None                            # a target, such as hf:PATH or file.py:make, of which `base` and `base+...` are variants
    data: str | None = None                             # a file of one's own, for tasks that read one
    variants: Annotated[list[str | Variant], Field(min_length=1)] = ["none:normed=true", "pre_norm"]
    baseline: str | None = None                         # name of a variant; default the first
    seeds: Positive = 3
    first_seed: Natural = 0
    lr: Rate | Annotated[list[Rate], Field(min_length=1)] | None = None         # the grid of learning rates
    steps: Positive | None = None
    depth: Many[Positive] | None = None
    width: Many[Positive] | None = None
    heads: Positive | None = None
    norm: Many[Norm] = "layer_norm"
    warmup: Many[Natural] | None = None
    init: Many[Initial] | None = None
    dtype: Many[Dtype] = "float32"
    batch: Many[Positive] | None = None
    optimizer: Many[Optimizer] = "adamw"
    schedule: Schedule = "cosine"
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    clip: Rate | Literal["none"] = 1.0                  # largest gradient norm
    evaluate: Positive | None = None                    # steps between evaluations; default a twentieth of all
    held_out: Positive | None = None                    # batches of an evaluation
    probes: Natural | list[Natural] = 3                 # how many steps are probed, or which
    measure: list[str] = []                             # names of skipway.lab.measures, taken at the probed steps
    checkpoint: Positive | None = None                  # steps between checkpoints; default a fifth of all
    match: Literal["params", "flops", "time"] | None = None
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    until_decided: bool = False
    max_seeds: Positive = 20
    threshold: float | None = None                      # held-out loss that counts as learned; default half of the loss of a blind guess
    device: str = "cpu"
    preset: str | None = None                           # a preset of skipway.lab.presets: it gives all fields but the device, and a claim to check

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, data: Any) -> Any:
        return {**presets.load(data["preset"]).STUDY, **data} if isinstance(data, dict) and isinstance(data.get("preset"), str) else data

    @model_validator(mode="after")
    def _as_preset(self) -> "Study":
        if self.preset is not None:
            fixed = Study(**presets.load(self.preset).STUDY)
            for name in Study.model_fields:
                if name not in ("preset", "device") and getattr(self, name) != getattr(fixed, name):
                    raise ValueError(f"preset {self.preset} fixes {name}, on which its thresholds rest; leave {name} out")
        return self

    @model_validator(mode="after")
    def _fits(self) -> "Study":
        if self.until_decided and not 2 <= self.seeds <= self.max_seeds:
            raise ValueError(f"until_decided starts with {self.seeds} seeds and ends with max_seeds {self.max_seeds}; want 2 <= seeds <= max_seeds")
        return self

    @field_validator(*FACTORS)
    @classmethod
    def _has_values(cls, value: Any) -> Any:
        if value == []:
            raise ValueError("want a value, or a list of at least one")
        return value


def fields() -> tuple[str, ...]:
    """Names of the fields of a study."""
    return tuple(Study.model_fields)


def told(errors: list[Any], where: Any) -> str:
    """One line for pydantic's errors. `where(location)` gives the file and line of a field."""
    error = max(errors, key=lambda e: len(_path(e)))            # of the sides of a union, the one that fits furthest
    path = _path(error)
    if error["type"] == "extra_forbidden":
        known = tuple(Variant.model_fields) if path[0] == "variants" else fields()
        near = difflib.get_close_matches(str(path[-1]), known, n=1)
        said = f"no such field; {'did you mean ' + near[0] + '?' if near else 'there are ' + ', '.join(known)}"
    else:
        got = "" if isinstance(error["input"], (dict, list)) or error["type"] in ("missing", "value_error") else f", got {error['input']!r}"
        said = error["msg"].removeprefix("Value error, ").replace("Input should be", "want") + got
    more = len({e["loc"][:1] for e in errors}) - 1
    place = ".".join(map(str, path)) or "study"
    return f"{where(path)}{place}: {said}" + (f" (and {more} more field{'s are' if more > 1 else ' is'} wrong)" if more else "")


def _path(error: Any) -> tuple[Any, ...]:
    """The location of an error in the file: without the names that pydantic gives to the sides of a union."""
    known = {*Study.model_fields, *Variant.model_fields}
    last = len(error["loc"]) - 1
    return tuple(p for i, p in enumerate(error["loc"]) if isinstance(p, int) or p in known or (i == last and error["type"] == "extra_forbidden"))
