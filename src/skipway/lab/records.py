"""The plain records of a study: what is stored, and with `_sections` what `report.json` (schema "skipway.compare/1") is made of. Needs no torch.

Numbers are finite or None; None means: not measured, or not finite where the field says so.
"""

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

SCHEMA = "skipway.compare/1"
STATES = ("waiting", "running", "finished", "diverged", "failed")
R = TypeVar("R")


@dataclass(frozen=True)
class Arm:
    """One variant with every field that a trial of it needs; learning rate and seed come with the trial."""

    name: str                               # "hyper:lanes=4", or with its factors "pre_norm depth=12"
    variant: str                            # the variant as it was written
    group: str                              # values of the factors that cross all variants, "depth=12"; arms are compared inside a group
    baseline: bool                          # whether it is its group's baseline
    scheme: str | None                      # name of the scheme; None for a factory
    options: dict[str, Any]                 # of the scheme
    factory: str | None                     # "file.py:factory"
    task: str                               # "copy:length=16" or "file.py:task"
    data: str | None                        # path of the data file
    depth: int                              # blocks
    width: int
    heads: int
    norm: str                               # layer_norm or rms_norm
    init: str                               # how the matrices start before the scheme's own wishes
    dtype: str
    batch: int                              # rows a step
    steps: int
    warmup: int                             # steps of linear warm-up
    schedule: str                           # constant, cosine or linear, after the warm-up
    optimizer: str
    weight_decay: float
    clip: float | None                      # largest gradient norm
    evaluate: int                           # steps from one held-out evaluation to the next
    held_out: int                           # batches of a held-out evaluation
    probes: tuple[int, ...]                 # steps at which depth is measured
    checkpoint: int                         # steps from one checkpoint to the next
    device: str
    parameters: int = 0                     # learned numbers
    flops: int = 0                          # of one training step: matrix products, forward and backward
    seconds: float = 0.0                    # of one training step, measured when the plan was made
    shared: int = 0                         # parameters that the group's baseline has too, by name and shape
    paired: int = 0                         # of those, the ones that start equal
    wiring: dict[str, Any] = field(default_factory=dict)    # schema "skipway.wiring/1"; empty where there is none
    notes: tuple[str, ...] = ()
    kind: str = "scheme"                    # kind of the variant: a name of skipway.lab.variants
    model: str | None = None                # name in skipway.models, of a variant that is a model; the target, of one that is a rewired base
    measures: tuple[str, ...] = ()          # names of skipway.lab.measures, taken at the probed steps


@dataclass(frozen=True)
class Trial:
    """One run: an arm at a learning rate with a seed."""

    arm: str
    lr: float
    seed: int

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits that depend on the arm's name, the rate and the seed."""
        return hashlib.sha256(json.dumps([self.arm, self.lr, self.seed]).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Point:
    """One point of a curve."""

    split: str                      # "train": mean since the last point; "held_out"
    step: int                       # steps done
    loss: float | None              # None: not finite
    score: float | None = None      # the task's held-out metric, higher is better
    lr: float | None = None         # rate of the last step (train)
    gradient: float | None = None   # norm of the gradient over all parameters, before clipping (train)


@dataclass(frozen=True)
class Depth:
    """One sublayer at one step, on one held-out batch."""

    step: int
    index: int                      # number of the sublayer
    layer: int                      # number of the block
    kind: str                       # kind of the branch
    stream: float | None            # RMS of the stream after the write
    write: float | None             # RMS of what the branch writes
    ratio: float | None             # write / RMS of the stream before
    gradient: float | None          # RMS of the loss's gradient on the stream after the write
    source: str = "probe"           # "probe": at the joins of the wiring; "branch": at the branches' outputs, where there is no join


@dataclass(frozen=True)
class Readout:
    """How well a linear map recovers the input from the last state: fitted on one part of the held-out data, measured on another."""

    step: int
    value: float | None             # share of tokens recovered, or R^2 of a continuous input
    measure: str                    # "accuracy" or "R2"
    chance: float                   # what knowing nothing would give


@dataclass(frozen=True)
class Measure:
    """What a measure of skipway.lab.measures gave at one step."""

    step: int
    name: str
    value: float | None             # None: the model has nothing of the kind, or not finite


@dataclass(frozen=True)
class Outcome:
    """What came of a trial."""

    state: str                          # finished, diverged or failed
    step: int                           # last step done; of a divergence, the step at which it was seen
    reason: str = ""                    # of a divergence or a failure
    final: float | None = None          # held-out loss at the end
    score: float | None = None          # the task's metric at the end
    points: tuple[Point, ...] = ()
    depths: tuple[Depth, ...] = ()
    readouts: tuple[Readout, ...] = ()
    seconds: float = 0.0                # of training steps alone, without evaluations and probes
    wall: float = 0.0                   # of the whole trial in this and earlier sittings
    tokens_per_second: float | None = None
    peak_memory: int | None = None      # bytes: of the process (cpu) or of the device (cuda)
    resumed: int = 0                    # how often it went on from a checkpoint
    environment: dict[str, Any] = field(default_factory=dict)       # versions, processor, threads
    notes: tuple[str, ...] = ()
    measures: tuple[Measure, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionary."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Outcome":
        """Inverse of `to_dict`."""
        parts = {"points": tuple(record(Point, p) for p in data.get("points", ())), "depths": tuple(record(Depth, d) for d in data.get("depths", ())),
                 "readouts": tuple(record(Readout, r) for r in data.get("readouts", ())),
                 "measures": tuple(record(Measure, m) for m in data.get("measures", ()))}
        return record(cls, {**data, **parts})


class Record(dict[str, Any]):
    """A report of schema "skipway.compare/1": the plain dictionary that is written to report.json, which shows itself in a notebook."""

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdicts with their sentences, and each variant at its best learning rate."""
        from skipway._registry import load
        shown: str = load("skipway.report", "drawing").notebook(self)     # docs/decisions/0004
        return shown


def record(kind: type[R], data: dict[str, Any]) -> R:
    """A record from a dictionary; fields that this version does not know are left out."""
    known = {f.name for f in fields(kind)}                  # type: ignore[arg-type]
    return kind(**{k: tuple(v) if isinstance(v, list) and k in ("probes", "notes", "measures") else v for k, v in data.items() if k in known})


def finite(value: float) -> float | None:
    """The number, or None where it is not finite."""
    return float(value) if math.isfinite(value) else None
