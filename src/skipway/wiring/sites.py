"""Step 4a: what is true at each join: branches, norms and their placement, scales, the module and the line."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skipway.wiring import operations as ops
from skipway.wiring.joins import times
from skipway.wiring.kinds import kind_of
from skipway.wiring.states import (
    CONSTANT,
    GATED,
    MIXED,
    SCALAR,
    VECTOR,
    Join,
    Norm,
    Region,
    State,
)

if TYPE_CHECKING:
    from skipway.wiring.graph import Graph

RAW, NORMED = 1, 2
ATTENTIONS = ("self_attention", "cross_attention")


@dataclass(frozen=True, slots=True)
class End:
    """Where a sublayer ends on the way back from an add. `marks` and `gain` lie between; `outer_*` the part beyond the last sum."""

    node: int
    marks: int
    gain: float | None
    norm: Norm | None
    outer_marks: int
    outer_gain: float | None


@dataclass(slots=True, eq=False)
class Term:
    """One branch of a join: where its sublayer ends, what stands between that and the add, and how it reads the stream."""

    end: End
    region: Region
    kind: str
    marks: int                              # on the way from its end to the add
    gain: float | None
    out_norm: Norm | None
    entries: int                            # RAW, NORMED or both: how it reads the stream
    in_norms: list[Norm]
    inner_norms: list[Norm]
    reads: set[State]                       # states of the stream that it reads
    modules: tuple[str, ...] = ()
    raw_reads: set[State] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Place:
    """Everything known of one join."""

    join: Join
    terms: list[Term]
    placement: str
    norm: str | None
    norms: list[Norm]
    module: str
    call: int
    inside: set[int] | None = None          # nodes of the join's region, where somebody asked


def describe(g: "Graph") -> list[Place]:
    """The places of all joins, in order. A place is `post` where its sum goes on through a norm alone."""
    joins = g.joins.found
    _cut(joins)
    terms = {j.node: _terms(g, j) for j in joins}
    raw = _raw_states(g, joins, terms)
    normed: dict[State, Norm] = {}
    for state in g.state:
        if state is not None and state.norm is not None and state.prev is not None:
            source = state.prev.prev if state.prev.via == "centred" else state.prev
            if source is not None:
                normed.setdefault(source, state.norm)
    return [_place(g, j, terms[j.node], raw, normed) for j in joins]


def _cut(joins: list[Join]) -> None:
    """A branch that is added to two streams and reads one of them: what it was computed from before that is the stream's, not the branch's."""
    added: dict[int, list[Join]] = {}
    for join in joins:
        if not join.folded:
            added.setdefault(join.branch, []).append(join)
    for same in (s for s in added.values() if len(s) > 1):
        least = min(same, key=lambda j: len(j.region.nodes)).region
        for join in same:
            if set(least.nodes) < set(join.region.nodes):
                join.region = least


def _place(g: "Graph", join: Join, terms: list[Term], raw: set[State], normed: dict[State, Norm]) -> Place:
    entry = [n for t in terms for n in t.in_norms]
    out = [t.out_norm for t in terms if t.out_norm is not None]
    inner = [n for t in terms for n in t.inner_norms if t.kind not in ATTENTIONS]
    if not entry and join.kind == "projection":
        entry = _normed_base(g, join)
    pre = bool(entry)
    if pre and out:
        placement, norms = "sandwich", entry + out
    elif pre:
        placement, norms = "pre", entry
    elif out:
        placement, norms = "output", out
    elif join.after not in raw and join.after in normed and _own(g, join, normed[join.after]):
        placement, norms = "post", [normed[join.after]]
    elif inner and any(t.kind == "conv" for t in terms):
        placement, norms = "inner", inner
    elif join.after not in raw and join.after in normed:
        placement, norms = "post", [normed[join.after]]
    elif inner:
        placement, norms = "inner", inner
    else:
        placement, norms = "none", []
    call = g.nodes[join.node].call
    return Place(join, terms, placement, norms[0].name if norms else None, norms, g.record.calls[call].path, call)


def _own(g: "Graph", join: Join, norm: Norm) -> bool:
    """Whether the norm of a sum is called by the very forward that adds."""
    home = g.nodes[join.node].call
    return home in (norm.call, g.record.calls[norm.call].parent)


def _normed_base(g: "Graph", join: Join) -> list[Norm]:
    """The norm behind which shortcut and branch part, where it runs inside the joiner: pre-activation with a projection."""
    state: State | None = join.before
    while state is not None and state.via == "act":
        state = state.prev
    call = g.record.calls[g.nodes[join.node].call]
    if state is None or state.norm is None or not call.first <= state.node < join.node or state.prev is None or state.prev.root is state:
        return []
    return [state.norm]


def _terms(g: "Graph", join: Join) -> list[Term]:
    if join.folded:
        found = [t for inner in join.folded for t in _terms(g, inner)]
        for term in found:
            term.marks |= join.marks
            term.gain = times(term.gain, join.factor)
        return found
    ends = _ends(g, join.branch, join.marks, join.factor, None)
    several = len(ends) > 1
    found = []
    for end in ends:
        region = g.joins.reach(end.node, join.before) if several else join.region
        if region is not None and region.learned:
            found.append(_term(g, join, end, region))
    if len(found) > 1:
        found = _experts(found)
    if not found:
        marks, gain = join.marks | g.marks[join.branch], times(join.factor, g.gain[join.branch])
        found.append(_term(g, join, End(join.branch, marks, gain, None, marks, gain), join.region))
    return found


def _experts(found: list[Term]) -> list[Term]:
    """Feed-forwards that are weighed by a router and summed are one branch, and a shared expert beside them belongs to it."""
    dense = [t for t in found if t.kind in ("ffn", "moe", "other")]
    routed = [t for t in dense if t.marks & GATED or t.kind == "moe"]
    if len(dense) < 2 or (not any(t.kind == "moe" for t in dense) and len(routed) < 2):
        return found
    first = dense[0]
    first.kind = "moe"
    if len(dense) > 1:
        first.marks, first.gain = first.end.outer_marks, first.end.outer_gain
    first.modules = _owned(tuple(dict.fromkeys(m for t in dense for m in t.modules)))
    first.region = Region(sorted({n for t in dense for n in t.region.nodes}), set().union(*[t.region.hits for t in dense]), True)
    return [t for t in found if t is first or t not in dense]


def _owned(paths: tuple[str, ...]) -> tuple[str, ...]:
    owner = common(list(paths))
    return (owner, *[p for p in paths if p != owner]) if owner else paths


def _ends(g: "Graph", n: int, marks: int, gain: float | None, norm: Norm | None, outer: tuple[int, float | None] | None = None) -> list[End]:
    """Walk back over scales, drop-outs, norms and sums to the ends of the sublayers."""
    state = g.state[n]
    assert state is not None
    marks, gain = marks | g.marks[n], times(gain, g.gain[n])
    if state.via == "norm" and state.norm is not None and norm is None:
        return _ends(g, state.norm.source, marks, gain, state.norm, outer)
    ended = state.prev
    if state.via == "act" and norm is None and ended is not None and ended.norm is not None and ended.norm.name in ("BatchNorm", "GroupNorm"):
        return _ends(g, ended.norm.source, marks, gain, ended.norm, outer)      # conv, norm, activation
    parts = g.terms.get(state.node) if state.via != "join" else None
    if parts and len(parts) > 1:
        return [e for p in parts for e in _ends(g, p, marks, gain, norm, (marks, gain))]
    return [End(n if state.via == "join" else state.node, marks, gain, norm, *(outer or (marks, gain)))]


def _term(g: "Graph", join: Join, end: End, region: Region) -> Term:
    entries, in_norms, raw_reads = _entries(g, region)
    kind = kind_of(g, region)
    inner = []
    if end.norm is None and not in_norms:
        inner = [s.norm for n in region.nodes if (s := g.state[n]) is not None and s.node == n and s.norm is not None]
    reads = {s for h in region.hits if (s := g.state[h]) is not None}
    return Term(end, region, kind, end.marks, end.gain, end.norm, entries, in_norms, inner, reads, _modules(g, join, region), raw_reads)


def _entries(g: "Graph", region: Region) -> tuple[int, list[Norm], set[State]]:
    """How the stream enters the branch's learned operations: raw, through a norm, or both; the norms; the states read raw."""
    label: dict[int, int] = dict.fromkeys(region.hits, RAW)
    source: dict[int, frozenset[State]] = {h: frozenset([s]) for h in region.hits if (s := g.state[h]) is not None}
    norms: dict[int, tuple[Norm, ...]] = {}
    entries, found, raw_reads = 0, dict[Norm, None](), set[State]()
    inside = set(region.nodes)
    for n in region.nodes:
        node, state = g.nodes[n], g.state[n]
        ins = [i for i in node.ins if i in label]
        if not ins:
            continue
        mark = 0
        for i in ins:
            mark |= label[i]
        if state is not None and state.norm is not None and state.node == n:
            label[n], norms[n] = NORMED, (state.norm,)
            continue
        if g.learned[n]:
            entries |= mark
            for i in ins:
                found.update(dict.fromkeys(norms.get(i, ())))
                if label[i] & RAW:
                    raw_reads |= source.get(i, frozenset())
            continue
        if n in g.statistic or n in g.square or (node.op == "cat" and any(i in inside and i not in label for i in node.ins)):
            continue
        label[n] = mark
        source[n] = frozenset().union(*[source.get(i, frozenset()) for i in ins])
        carried = tuple(dict.fromkeys(x for i in ins for x in norms.get(i, ())))
        if carried:
            norms[n] = carried
    return entries, list(found), raw_reads


def _raw_states(g: "Graph", joins: list[Join], terms: dict[int, list[Term]]) -> set[State]:
    """States that are used other than through a norm: as a shortcut, by a learned operation, by an activation, as an output."""
    raw: set[State] = {j.before for j in joins}
    for found in terms.values():
        for term in found:
            raw |= term.raw_reads
    for n in g.record.outputs:
        state = g.state[n]
        if state is not None:
            raw.add(state)
    for node in g.nodes:
        state = g.state[node.id]
        if state is None:
            continue
        if state.node == node.id and state.prev is not None and state.via in ("act", "cat", "pool"):
            if node.id not in g.square and node.id not in g.statistic:
                raw.add(state.prev)
        elif g.learned[node.id]:
            raw.update(s for i in node.ins if (s := g.state[i]) is not None)
    return raw


def _modules(g: "Graph", join: Join, region: Region) -> tuple[str, ...]:
    """Paths of the modules that hold the branch's learned operations: their common owner first, where that is not the joiner."""
    calls = g.record.calls
    joiner = calls[g.nodes[join.node].call]
    home, learned = joiner.path, [n for n in region.nodes if g.learned[n]]
    own = [n for n in learned if n >= joiner.first]         # without what made positions or a memory before the joiner was called
    paths = list(dict.fromkeys(calls[g.nodes[n].call].path for n in own or learned))
    owner = common(paths)
    if owner and owner != home and not _contains(owner, home):
        return (owner, *[p for p in paths if p != owner])
    return tuple(p for p in paths if p != home) or tuple(paths)


def _contains(outer: str, inner: str) -> bool:
    return outer == inner or inner.startswith(outer + ".") or outer == ""


def common(paths: list[str]) -> str:
    """The longest module path that all paths lie in."""
    if not paths:
        return ""
    split = [p.split(".") for p in paths]
    shared = []
    for parts in zip(*split, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)


def channel_axis(g: "Graph", place: Place) -> int:
    """The axis of channels of a state: 1 where a convolution of the branch gives the stream's own layout, else the last."""
    shape = g.nodes[place.join.node].shape
    convolved = any(g.nodes[n].op in ops.CONVOLUTIONS and g.nodes[n].shape == shape for n in place.join.region.nodes)
    return 1 if convolved and len(shape) > 2 else len(shape) - 1


def scale_of(marks: int, gain: float | None) -> tuple[str, float | None]:
    """The kind of what multiplies a branch, and its value where that is a constant."""
    if marks & GATED:
        return "input_dependent", None
    if marks & VECTOR:
        return "vector", None
    if marks & SCALAR:
        return "scalar", None
    if marks & CONSTANT and gain is not None and abs(gain - 1) > 1e-9:
        return "constant", gain
    return "none", gain


def shortcut_of(g: "Graph", join: Join, post: set[State]) -> str:
    """One of the kinds of a shortcut. `post`: states whose norm is a post-norm. A norm or a pool behind the stem is part of the stem."""
    if join.kind == "projection":
        return "projection"
    if g.marks[join.shortcut] & MIXED or join.node in g.reads:
        return "mixed"
    state = join.before
    if state.via == "norm" and state.prev is not None:
        source = state.prev.prev if state.prev.via == "centred" else state.prev
        behind_stem = source is None or (source not in post and not source.joined)
        return "identity" if behind_stem or source in post else "normed"
    if state.via == "pool":
        read = any(g.state[n] is state for n in join.region.hits)
        return "identity" if read and not state.joined else "pooled"
    return "identity"

