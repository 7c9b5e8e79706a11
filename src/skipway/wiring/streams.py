"""Step 4b: joins linked by their shortcuts are streams; those between stem and head are main."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from skipway.wiring.sites import Place, scale_of, shortcut_of
from skipway.wiring.states import PART, State
from skipway.wiring.structure import Branch, Site, Stream

if TYPE_CHECKING:
    from skipway.wiring.graph import Graph


@dataclass(slots=True, eq=False)
class Flow:
    """A stream while it is being recovered: its places in order and the public value made of them."""

    root: State
    places: list[Place]
    main: bool = False
    stream: Stream | None = None


def assemble(g: "Graph", places: list[Place]) -> list[Flow]:
    """Flows in order of use, main ones first."""
    inner = _inner(places)
    flows: dict[tuple[int, State], Flow] = {}
    for place in places:
        outer = inner.get(place.join.node, -1)
        root = place.join.before.root if outer < 0 else _start(place.join.before)
        flows.setdefault((outer, root), Flow(root, [])).places.append(place)
    live = ancestors(g, g.record.outputs)
    principal = ancestors(g, g.record.outputs[:1])
    for (outer, _), flow in flows.items():
        flow.main = outer < 0 and any(p.join.node in live for p in flow.places)
        if flow.main and not any(p.join.node in principal for p in flow.places):
            flow.main = len(flow.places) > 1
        if flow.main and _head(g, flow, list(flows.values())):
            flow.main = False
    ordered = sorted(flows.values(), key=lambda f: (not f.main, f.places[0].join.node))
    taken: dict[str, int] = {}
    stems = _stems(g, ordered)
    for flow in ordered:
        flow.stream = _stream(g, flow, taken, stems)
    return ordered


def ancestors(g: "Graph", nodes: tuple[int, ...]) -> set[int]:
    """The nodes themselves and all that they were computed from."""
    seen = set(nodes)
    stack = list(nodes)
    while stack:
        for i in g.nodes[stack.pop()].ins:
            if i not in seen:
                seen.add(i)
                stack.append(i)
    return seen


def _inner(places: list[Place]) -> dict[int, int]:
    """Joins that lie inside the branch of another join, with that join: all but those that continue its very shortcut."""
    joined = {p.join.node: p.join for p in places}
    found: dict[int, int] = {}
    for place in places:
        join = place.join
        for n in join.region.nodes:
            other = joined.get(n)
            if other is not None and other is not join and not _continues(other.before, join.before):
                found.setdefault(n, join.node)
    return found


def _continues(state: State, first: State) -> bool:
    """Whether `state` is `first` or comes after it on the stream itself, through joins and activations alone."""
    while state is not first:
        if state.prev is None or state.via not in ("join", "act", "self_add"):
            return False
        state = state.prev
    return True


def _start(state: State) -> State:
    while state.prev is not None and state.via in ("join", "act"):
        state = state.prev
    return state


def _head(g: "Graph", flow: Flow, flows: list[Flow]) -> bool:
    """A single join on a value that is smaller than the stream it was read from: a pooling head."""
    if len(flow.places) > 1:
        return False
    join = flow.places[0].join
    size = _numel(g.nodes[join.node].shape)
    earlier = [f for f in flows if f.places[-1].join.node < flow.root.node and len(f.places) > 1]
    return any(size < _numel(g.nodes[f.places[-1].join.node].shape) for f in earlier)


def _stream(g: "Graph", flow: Flow, taken: dict[str, int], stems: set[State]) -> Stream:
    calls = g.record.calls
    blocks: dict[tuple[str, int], int] = {}
    sites = []
    for index, place in enumerate(flow.places):
        layer = blocks.setdefault(block_of(g, place), len(blocks))
        sites.append(_site(g, place, index, layer))
    lanes = max(g.mixed.get(flow.root, 1), 1)
    base = _name(calls[g.nodes[flow.root.node].call].path, [p.module for p in flow.places])
    taken[base] = taken.get(base, 0) + 1
    name = base if taken[base] == 1 else f"{base} {taken[base]}"
    stem = calls[g.nodes[flow.root.node].call].path if g.nodes[flow.root.node].op != "input" else g.nodes[flow.root.node].name
    return Stream(name, flow.main, lanes, stem, final_norm(g, flow, stems), tuple(sites))


def _site(g: "Graph", place: Place, index: int, layer: int) -> Site:
    join, node = place.join, g.nodes[place.join.node]
    marks = 0
    gain: float | None = place.terms[0].gain if place.terms else None
    for term in place.terms:
        marks |= term.marks
        if term.gain != gain:
            gain = None
    scale, constant = scale_of(marks, gain)
    older = any(s is not join.before and s.depth < join.before.depth for t in place.terms for s in t.reads) and not any(
        s is join.before for t in place.terms for s in t.reads)
    file, line = node.where or (None, None)
    branches = tuple(Branch(t.kind, t.modules) for t in place.terms)
    norms = tuple(dict.fromkeys(g.record.calls[n.call].path for n in place.norms))
    return Site(index, layer, place.module, file, line, place.placement, place.norm, norms, shortcut_of(g, join), _rounded(join.gain), scale,
                _rounded(constant) if scale in ("none", "constant") else None, len(place.terms) > 1 or older, join.in_place, branches)


def block_of(g: "Graph", place: Place) -> tuple[str, int]:
    """The repeated block a join stands in: the innermost enclosing module whose name is a number, and which call of it."""
    calls = g.record.calls
    call = calls[place.call]
    numbered = None
    while True:
        if call.path.rpartition(".")[2].isdigit():
            numbered = call
            break
        if call.parent < 0 or call.parent == call.id:
            break
        call = calls[call.parent]
    chosen = numbered if numbered is not None else calls[place.call]
    return chosen.path, chosen.number


def final_norm(g: "Graph", flow: Flow, stems: set[State]) -> str | None:
    """Path of the module that norms the last state as a whole, or None. A norm before the stem of a next stream is not one."""
    last = flow.places[-1]
    if last.placement == "post":
        return None
    after = last.join.after
    regions = {n for p in flow.places for n in p.join.region.nodes}
    lanes = max(g.mixed.get(flow.root, 1), 1)
    size = _numel(g.nodes[after.node].shape)
    through = ("norm", "centred", "stack", "pool") if lanes > 1 else ("norm", "centred")
    for node in g.nodes[after.node + 1:]:
        state = g.state[node.id]
        if state is None or state.norm is None or state.node != node.id or node.id in regions or state in stems or not state.has(after):
            continue
        if not g.marks[state.norm.source] & PART and _numel(node.shape) * lanes >= size and _passes(state, after, through):
            return g.record.calls[state.norm.call].path or type(g.record.model).__name__
    return None


def _stems(g: "Graph", flows: list[Flow]) -> set[State]:
    """States from which one learned operation makes the first state of a main stream."""
    found: set[State] = set()
    for flow in flows:
        if flow.main and g.learned[flow.root.node]:
            found.update(s for i in g.nodes[flow.root.node].ins if (s := g.state[i]) is not None)
    return found


def _passes(state: State, after: State, through: tuple[str, ...]) -> bool:
    while state is not after:
        if state.prev is None or state.via not in through:
            return False
        state = state.prev
    return True


def _name(stem: str, modules: list[str]) -> str:
    """A short name: encoder or decoder where the paths say so, else the part of the path that the sites share."""
    words = ".".join(modules).split(".")
    for word in ("encoder", "decoder", "vision", "text", "audio"):
        if any(word in w for w in words[:6]):
            return word
    shared = [w for w in modules[0].split(".") if not w.isdigit()] if modules else []
    return shared[0] if shared else "stream"


def _numel(shape: tuple[int, ...]) -> int:
    n = 1
    for s in shape:
        n *= s
    return n


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 9)
