"""The recovered structure as plain values: a `Wiring` has streams, a stream has sites, a site has branches.

Nothing here needs torch; a `Wiring` can be rebuilt from its dictionary (schema "skipway.wiring/1").
"""

from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA = "skipway.wiring/1"

KINDS = ("self_attention", "cross_attention", "ffn", "moe", "conv", "ssm", "other")
PLACEMENTS = ("pre", "post", "sandwich", "output", "inner", "none")
SHORTCUTS = ("identity", "projection", "normed", "pooled", "mixed")
SCALES = ("none", "constant", "scalar", "vector", "input_dependent")


@dataclass(frozen=True)
class Branch:
    """A sublayer F whose result joins the stream."""

    kind: str                       # one of KINDS
    modules: tuple[str, ...]        # paths of the modules that compute it, outermost first; () where no module owns it


@dataclass(frozen=True)
class Site:
    """One join on a stream: where `shortcut` and the sum of `branches` meet."""

    index: int                      # position on its stream, from 0
    layer: int                      # number of the repeated block on this stream, from 0
    module: str                     # path of the module whose forward performs the add ("" is the model itself)
    file: str | None
    line: int | None
    placement: str                  # one of PLACEMENTS
    norm: str | None                # "LayerNorm", "RMSNorm", "BatchNorm", "GroupNorm" or None
    norm_modules: tuple[str, ...]
    shortcut: str                   # one of SHORTCUTS
    gain: float | None              # sum over identity paths of the product of constants; None where it is not a constant
    scale: str                      # one of SCALES: what multiplies the branch
    branch_scale: float | None      # the constant on the branch; None where it is not a constant
    parallel: bool                  # several branches read one state of the stream
    in_place: bool
    branches: tuple[Branch, ...]


@dataclass(frozen=True)
class Stream:
    """What carries the identity path from stem to head."""

    name: str
    main: bool
    lanes: int
    stem: str                       # path of the module that makes the first state
    final_norm: str | None          # path of the module that norms the last state, or None
    sites: tuple[Site, ...]


@dataclass(frozen=True)
class Wiring:
    """All streams of a model, main streams first, in order of use."""

    streams: tuple[Stream, ...]
    model: str = ""                 # class name of the model
    parameters: int = 0             # number of registered parameters
    how: str = "abstract"           # "abstract": no numbers were computed; "real": one real forward
    notes: tuple[str, ...] = ()     # what a reader must know about how this was recovered
    facts: Any = field(default=None, compare=False, repr=False)   # the recorded graph behind it; not part of the dictionary

    @property
    def sites(self) -> tuple[Site, ...]:
        """Sites of the main streams, in order of use."""
        return tuple(site for stream in self.streams if stream.main for site in stream.sites)

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionary of schema "skipway.wiring/1"; equal for equal models."""
        own = {"model": self.model, "parameters": self.parameters, "how": self.how, "notes": list(self.notes)}
        return {"schema": SCHEMA, **own, "streams": [_plain(asdict(s)) for s in self.streams]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Wiring":
        """Inverse of `to_dict`. Raises ValueError on another schema."""
        if data.get("schema") != SCHEMA:
            raise ValueError(f"Wiring.from_dict: got schema {data.get('schema')!r}, want {SCHEMA!r}; write the file anew with this version")
        streams = tuple(_stream(s) for s in data["streams"])
        return cls(streams, data["model"], data["parameters"], data["how"], tuple(data["notes"]))


def _stream(data: dict[str, Any]) -> Stream:
    return Stream(**{**data, "sites": tuple(_site(s) for s in data["sites"])})


def _site(data: dict[str, Any]) -> Site:
    branches = tuple(Branch(b["kind"], tuple(b["modules"])) for b in data["branches"])
    return Site(**{**data, "norm_modules": tuple(data["norm_modules"]), "branches": branches})


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value
