"""The recovered structure as plain values: a `Wiring` has streams, a stream has sites, a site has branches.

Nothing here needs torch; a `Wiring` can be rebuilt from its dictionary (schema "skipway.wiring/1").
"""

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skipway.wiring.compare import Difference
    from skipway.wiring.replay import Decomposition, Replay

SCHEMA = "skipway.wiring/1"

KINDS = ("self_attention", "cross_attention", "ffn", "moe", "conv", "ssm", "other")
PLACEMENTS = ("pre", "post", "sandwich", "output", "inner", "none")
SHORTCUTS = ("identity", "projection", "normed", "pooled", "mixed")
SCALES = ("none", "constant", "scalar", "vector", "input_dependent")
DROPS = ("none", "dropout", "path")
LINKS = ("follows", "reads", "add", "concat", "inside")


@dataclass(frozen=True)
class Branch:
    """A sublayer F whose result joins the stream."""

    kind: str                       # one of KINDS
    modules: tuple[str, ...]        # paths of the modules that compute it, outermost first; () where no module owns it
    in_norms: tuple[str, ...] = ()  # paths of the norms through which it reads the stream
    out_norms: tuple[str, ...] = ()     # paths of the norms between its end and the join
    drop: str = "none"              # one of DROPS: what leaves it out, or parts of it, between its end and the join in training


@dataclass(frozen=True)
class Site:
    """One join on a stream: where `shortcut` and the sum of `branches` meet."""

    index: int                      # position on its stream, from 0
    layer: int                      # number of the repeated block on this stream, from 0
    module: str                     # path of the module whose forward performs the add ("" is the model itself)
    file: str | None                # source file of the join, where it is known
    line: int | None                # line in that file, from 1
    placement: str                  # one of PLACEMENTS
    norm: str | None                # "LayerNorm", "RMSNorm", "BatchNorm", "GroupNorm" or None
    norm_modules: tuple[str, ...]   # paths of the norms that make the placement
    shortcut: str                   # one of SHORTCUTS
    gain: float | None              # sum over identity paths of the product of constants; None where it is not a constant
    scale: str                      # one of SCALES: what multiplies the branch
    branch_scale: float | None      # the constant on the branch; None where it is not a constant
    parallel: bool                  # several branches read one state of the stream
    in_place: bool                  # the join writes into its own operand
    branches: tuple[Branch, ...]
    shortcut_from: int | None = None    # sites before the state that the shortcut carries, where that is not the newest one
    read_from: int | None = None    # sites before the newest state that a branch reads, where that is not the newest one


@dataclass(frozen=True)
class Stream:
    """What carries the identity path from stem to head."""

    name: str                       # unique in the wiring
    main: bool                      # runs between stem and head
    lanes: int                      # number of lanes; 1 is a plain stream
    stem: str                       # path of the module that makes the first state
    final_norm: str | None          # path of the module that norms the last state, or None
    sites: tuple[Site, ...]


@dataclass(frozen=True)
class Link:
    """What runs between two places other than along a stream; a place is a stream and a number of its sites that lie before.

    follows: the first state of `target` is computed from the source (`target_at` is 0). reads: a branch of site `target_at` reads the
    source. add, concat: a long skip; the source is added to, or set beside, the state before site `target_at`. inside: the side
    stream `source` lives in a branch of site `target_at`.
    """

    kind: str                       # one of LINKS
    source: str                     # name of a stream
    source_at: int
    target: str                     # name of a stream
    target_at: int


@dataclass(frozen=True)
class Wiring:
    """All streams of a model, main streams first, in order of use."""

    streams: tuple[Stream, ...]
    model: str = ""                 # class name of the model
    parameters: int = 0             # number of registered parameters
    how: str = "abstract"           # "abstract": no numbers were computed; "real": one real forward
    notes: tuple[str, ...] = ()     # what a reader must know about how this was recovered
    facts: Any = field(default=None, compare=False, repr=False)   # the recorded graph behind it; not part of the dictionary
    links: tuple[Link, ...] = ()    # what runs between streams, and long skips

    @property
    def sites(self) -> tuple[Site, ...]:
        """Sites of the main streams, in order of use."""
        return tuple(site for stream in self.streams if stream.main for site in stream.sites)

    def diff(self, other: "Wiring", *, names: bool = False) -> "tuple[Difference, ...]":
        """In what `other` differs: streams and sites paired by order and kind, not by module names; () where nothing does.

        names: paths of modules are compared, too.
        """
        from skipway.wiring.compare import compare
        return compare(self, other, names=names)

    def draw(self, format: str = "text", *, open: bool = False) -> str:
        """The wiring as a drawing: "text" (plain characters), "svg" (a file of its own) or "html" (a page with the table of sites).

        open: every block of a repeat is drawn ("text" and "svg"). Raises UsageError where there is no such format.

        Examples:
            >>> print(skipway.trace(model, ids).draw())
            >>> pathlib.Path("wiring.svg").write_text(skipway.trace(model, ids).draw("svg"))
        """
        from skipway._registry import load
        drawn: str = load("skipway.report", "drawing").draw(self.to_dict(), format, open=open)     # docs/decisions/0004
        return drawn

    def _repr_html_(self) -> str:
        """What a notebook shows: the drawing, light and dark."""
        from skipway._registry import load
        shown: str = load("skipway.report", "drawing").notebook(self.to_dict())     # docs/decisions/0004
        return shown

    def replay(self, model: Any, *args: Any, **kwargs: Any) -> "Replay":
        """Run `model(*args, **kwargs)` once and rebuild every state of every stream from the stream's start and the recorded branches.

        `result.sites[i].ulp` is how far the rebuilt state of a site is from the recorded one, in units in the last place; `result.ok`
        says whether all are within what the arithmetic allows: 0 where a join is one operation, 2 where it is several. The model runs
        in the mode and dtype it is in, and is left as it was.

        Raises:
            TraceError: the forward fails, or the model's wiring is not this one.
            NeedsDataError: it holds no numbers.

        Examples:
            >>> skipway.trace(model, x).replay(model, x).worst
            0
        """
        from skipway.wiring.replay import replay
        return replay(self, model, args, kwargs)

    def decompose(self, model: Any, *args: Any, **kwargs: Any) -> "Decomposition":
        """Run `model(*args, **kwargs)` once and take its streams apart into states and what each site writes.

        For each stream, in the order of `streams`: `states` (one more than sites), `branches` and `writes`, and `write(k, state, branch)`,
        which gives `states[k + 1]` of `states[k]` and `branches[k]` to the last bit. Where nothing stands on the stream,
        `states[-1] == states[0] + sum(writes)` up to the rounding that `identity()` states. `named()` gives all tensors under names.

        Raises:
            TraceError: the forward fails, or the model's wiring is not this one.
            NeedsDataError: it holds no numbers.

        Examples:
            >>> stream = skipway.trace(model, x).decompose(model, x).streams[0]
            >>> torch.equal(stream.write(0, stream.states[0], stream.branches[0]), stream.states[1])
            True
        """
        from skipway.wiring.replay import decompose
        return decompose(self, model, args, kwargs)

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionary of schema "skipway.wiring/1"; equal for equal models."""
        own = {"model": self.model, "parameters": self.parameters, "how": self.how, "notes": list(self.notes)}
        return {"schema": SCHEMA, **own, "streams": [_plain(asdict(s)) for s in self.streams],
                "links": [asdict(link) for link in self.links]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Wiring":
        """Inverse of `to_dict`; fields that this version does not know are left out. Raises ValueError on another schema."""
        if data.get("schema") != SCHEMA:
            raise ValueError(f"Wiring.from_dict: got schema {data.get('schema')!r}, want {SCHEMA!r}; write the file anew with this version")
        streams = tuple(_stream(s) for s in data["streams"])
        links = tuple(Link(**_known(Link, link)) for link in data.get("links", []))
        return cls(streams, data["model"], data["parameters"], data["how"], tuple(data["notes"]), links=links)


def _stream(data: dict[str, Any]) -> Stream:
    return Stream(**{**_known(Stream, data), "sites": tuple(_site(s) for s in data["sites"])})


def _site(data: dict[str, Any]) -> Site:
    branches = tuple(Branch(**_known(Branch, b)) for b in data["branches"])
    return Site(**{**_known(Site, data), "branches": branches})


def _known(kind: Any, data: dict[str, Any]) -> dict[str, Any]:
    """The fields of a record, lists as tuples."""
    return {f.name: tuple(v) if isinstance(v := data[f.name], list) else v for f in fields(kind) if f.name in data}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value
