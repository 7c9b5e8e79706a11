"""What a probe says as plain values: a `Table` has a row for each site, in stream order, and a summary. Needs no torch."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

SCHEMA = "skipway.probe/1"
DEAD = 1e-4         # a branch whose write is below this share of its stream counts as dead
ENOUGH = 0.9        # the sites that carry this share of the summed influence are the effective depth
STEADY = 10.0       # a gradient that changes by less than this factor from the first to the last block is steady


@dataclass(frozen=True)
class Row:
    """One site in numbers. Magnitudes are root mean squares over all elements, in the units of the stream; None: not measured.

    before, after: of the stream as it enters the join and as it leaves it. branch: of what is added. ratio = branch / before.
    cosine: of branch and stream, mean over tokens. influence = 1 - cos(before, after) (Men et al. 2024, ShortGPT), mean over tokens.
    angle = arccos(cos(before, after)) / pi (Gromov et al. 2024), mean over tokens. rounded: share of the elements with a non-zero
    branch that the sum leaves as they were, in the model's dtype. largest: of |after|, and its channel. rank: effective rank of the
    stream over tokens, exp of the entropy of the singular values' shares (Roy and Vetterli 2007), of at most 128 tokens.
    nonfinite: elements of `after` that are NaN or infinite.
    grad_stream, grad_branch: of the loss's gradient on `after` and on the branch. identity: <i, g> / <g, g> for the gradient g on
    `after` and the part i of it that came down the identity path alone. lesion: change of the loss when the branch is left out;
    lesions: the same for each of several branches that are summed before the join, by name. lanes: for streams of several lanes, see `LaneRow`.
    """

    stream: str                         # name of the stream
    index: int                          # number of the site on its stream
    layer: int                          # number of the block
    module: str                         # path of the module that joins
    kind: str                           # kinds of the branches, joined by +
    placement: str                      # of the norm, as in the wiring
    file: str | None = None             # source file of the join
    line: int | None = None             # line of the join
    before: float | None = None         # magnitude of the stream as it enters the join
    after: float | None = None          # magnitude of the stream as it leaves it
    branch: float | None = None         # magnitude of what is added
    ratio: float | None = None          # branch / before
    cosine: float | None = None         # of branch and stream, mean over tokens
    influence: float | None = None      # 1 - cos(before, after), mean over tokens
    angle: float | None = None          # arccos(cos(before, after)) / pi, mean over tokens
    rounded: float | None = None        # share of the updates that the model's dtype rounds away
    largest: float | None = None        # largest element of the stream after the join
    channel: int | None = None          # the channel that holds it
    rank: float | None = None           # effective rank of the stream over tokens
    nonfinite: int | None = None        # elements of the stream that are NaN or infinite
    grad_stream: float | None = None    # magnitude of the gradient on the stream after the join
    grad_branch: float | None = None    # magnitude of the gradient on the branch
    identity: float | None = None       # share of the gradient that came down the identity path alone
    lesion: float | None = None         # change of the loss when the branch is left out
    lanes: dict[str, Any] | None = None     # use of each lane and what the mixer does; None for one lane
    lesions: dict[str, float] | None = None     # the same for each of several branches of the site, by name


NO_NUMBERS = frozenset(["stream", "index", "layer", "module", "kind", "placement", "file", "line", "lanes", "lesions"])
NUMBERS = tuple(f.name for f in fields(Row) if f.name not in NO_NUMBERS)


@dataclass(frozen=True)
class Summary:
    """What a person wants first, for one stream.

    growth: magnitude at the end over that at the start. exponent, fit: of magnitude ~ sites^exponent by least squares on logarithms,
    and its R^2. gradient: gradient on the stream after the first block over that after the last; verdict: "vanishing", "steady" or "exploding" on
    the way back to the first block. effective_depth: sites that carry 90 % of the summed influence. dead: sites whose branch writes
    less than 1e-4 of the stream. look: sites to look at, each with why. rank_correlation: Spearman's, of influence and lesion.
    stem_identity: the `identity` of the gradient at the stream's start.
    """

    stream: str                         # name of the stream
    sites: int                          # number of sites
    growth: float | None = None         # magnitude at the end over that at the start
    exponent: float | None = None       # of magnitude ~ sites^exponent
    fit: float | None = None            # its R^2 on logarithms
    gradient: float | None = None       # gradient after the first block over that after the last
    verdict: str | None = None          # "vanishing", "steady" or "exploding"
    effective_depth: int | None = None  # sites that carry 90 % of the summed influence
    dead: tuple[int, ...] = ()          # sites whose branch writes less than 1e-4 of the stream
    look: tuple[tuple[int, str], ...] = ()    # sites to look at, each with why
    rank_correlation: float | None = None    # of influence and lesion (Spearman)
    stem_identity: float | None = None  # the identity share at the stream's start


@dataclass(frozen=True)
class Table:
    """Rows of all main streams, a summary a stream, and how they were made. `notes` say what a reader must know (random inputs, and the like)."""

    rows: tuple[Row, ...]               # one a site, streams in order of use
    summary: tuple[Summary, ...]        # one a stream
    model: str = ""                     # class name of the model
    parameters: int = 0                 # number of registered parameters
    dtype: str = ""                     # of the parameters
    training: bool = False              # whether the model was in train mode
    inputs: str = ""                    # what the inputs are: "given", "random, seed 0", "text FILE, 4 x 128 tokens"
    loss: float | None = None           # the loss of this batch
    notes: tuple[str, ...] = ()         # what a reader must know
    target: str | None = None           # the command-line target
    wiring: dict[str, Any] = field(default_factory=dict)    # of the probed model, schema "skipway.wiring/1"
    weights: str = ""                   # "random, seed 0", the files of a checkpoint, or "" where the model came as it is
    loss_name: str = ""                 # "next-token", "masked-token", "classification" or "file.py:function"

    def column(self, name: str) -> list[Any]:
        """One value of every row, such as `column("ratio")`. Raises KeyError for another name."""
        if name not in {f.name for f in fields(Row)}:
            raise KeyError(f"Table.column: no column {name!r}; there are {', '.join(f.name for f in fields(Row))}")
        return [getattr(row, name) for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionary of schema "skipway.probe/1"; numbers that are not finite are the texts "nan", "inf" and "-inf"."""
        return {"schema": SCHEMA, **{f.name: _plain(_value(getattr(self, f.name))) for f in fields(self)}}

    def _repr_html_(self) -> str:
        """What a notebook shows: the summary of each stream, and the rows on demand."""
        from skipway._registry import load
        shown: str = load("skipway.report", "drawing").notebook(self.to_dict())     # docs/decisions/0004
        return shown

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Table":
        """Inverse of `to_dict`. Raises ValueError on another schema."""
        if data.get("schema") != SCHEMA:
            raise ValueError(f"Table.from_dict: got schema {data.get('schema')!r}, want {SCHEMA!r}; write the file anew with this version")
        known = {f.name for f in fields(cls)}
        own = {k: v for k, v in data.items() if k in known}
        rows = tuple(_row(row) for row in own.pop("rows"))
        summary = tuple(_summary(s) for s in own.pop("summary"))
        return cls(rows, summary, **{**own, "loss": _number(own.get("loss")), "notes": tuple(own.get("notes", ()))})


def summarize(stream: str, rows: Sequence[Row], stem_identity: float | None = None) -> Summary:
    """The summary of one stream's rows."""
    sizes = [r.after for r in rows if r.after is not None and math.isfinite(r.after) and r.after > 0]
    start = rows[0].before if rows else None
    growth = sizes[-1] / start if sizes and start else None
    exponent, fit = _power(sizes)
    grads = {r.layer: r.grad_stream for r in rows if r.grad_stream is not None}       # the last site of each block
    gradient = verdict = None
    if len(grads) > 1:
        first, *_, last = grads.values()
        gradient = first / last if last else math.inf
        verdict = _verdict(gradient)
    influences = [r.influence for r in rows if r.influence is not None and math.isfinite(r.influence)]
    dead = tuple(r.index for r in rows if r.ratio is not None and r.ratio < DEAD)
    return Summary(stream, len(rows), growth, exponent, fit, gradient, verdict, _effective(influences), dead, tuple(_look(rows)), _spearman(rows),
                   stem_identity)


def _verdict(gradient: float) -> str:
    if not gradient <= STEADY:                          # also where it is not a number
        return "exploding"
    return "vanishing" if gradient < 1 / STEADY else "steady"


def _power(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Exponent and R^2 of value ~ (site + 1)^exponent."""
    if len(values) < 3:
        return None, None
    x = [math.log(i + 1) for i in range(len(values))]
    y = [math.log(v) for v in values]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    sxx = sum((a - mx) ** 2 for a in x)
    sxy = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    syy = sum((b - my) ** 2 for b in y)
    return sxy / sxx, (sxy * sxy / (sxx * syy) if syy > 0 else 1.0)


def _effective(influences: Sequence[float]) -> int | None:
    """The fewest sites that carry 90 % of the summed influence."""
    total = sum(influences)
    if not influences or total <= 0:
        return None
    carried, count = 0.0, 0
    for value in sorted(influences, reverse=True):
        carried, count = carried + value, count + 1
        if carried >= ENOUGH * total:
            break
    return count


def _look(rows: Sequence[Row]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for row in rows:
        if row.nonfinite:
            found.append((row.index, f"{row.nonfinite} elements are not finite"))
        elif row.ratio is not None and row.ratio < DEAD:
            found.append((row.index, f"the branch writes {row.ratio:.1e} of the stream"))
        elif row.rounded is not None and row.rounded > 0.1:
            found.append((row.index, f"{row.rounded:.0%} of the updates are rounded away"))
        elif row.largest is not None and row.after and row.largest > 100 * row.after:
            found.append((row.index, f"channel {row.channel} holds {row.largest:.3g}, {row.largest / row.after:.0f} times the stream's magnitude"))
        if row.grad_stream is not None and not (math.isfinite(row.grad_stream) and row.grad_stream > 0):
            found.append((row.index, f"the gradient on the stream is {row.grad_stream:g}"))
    return found


def _spearman(rows: Sequence[Row]) -> float | None:
    """Rank correlation of influence and lesion; ties share their mean rank."""
    pairs = [(r.influence, r.lesion) for r in rows if r.influence is not None and r.lesion is not None]
    if len(pairs) < 3:
        return None
    a, b = (_ranks([p[i] for p in pairs]) for i in (0, 1))
    ma, mb = sum(a) / len(a), sum(b) / len(b)
    sab = sum((x - ma) * (y - mb) for x, y in zip(a, b, strict=True))
    saa, sbb = sum((x - ma) ** 2 for x in a), sum((y - mb) ** 2 for y in b)
    return sab / math.sqrt(saa * sbb) if saa > 0 and sbb > 0 else None


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for i in order[at:end + 1]:
            ranks[i] = (at + end) / 2
        at = end + 1
    return ranks


def _value(value: Any) -> Any:
    return [asdict(v) for v in value] if isinstance(value, tuple) and value and isinstance(value[0], (Row, Summary)) else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value


def _row(data: dict[str, Any]) -> Row:
    known = {f.name for f in fields(Row)}
    return Row(**{k: _number(v) if k in NUMBERS else v for k, v in data.items() if k in known})


def _summary(data: dict[str, Any]) -> Summary:
    known = {f.name for f in fields(Summary)} - {"dead", "look", "stream", "verdict"}
    numbers: dict[str, Any] = {k: _number(v) for k, v in data.items() if k in known}
    look = tuple((int(i), str(why)) for i, why in data.get("look", ()))
    return Summary(stream=data["stream"], verdict=data.get("verdict"), dead=tuple(data.get("dead", ())), look=look, **numbers)
