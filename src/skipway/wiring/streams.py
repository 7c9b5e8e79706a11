"""Step 4b: joins linked by their shortcuts are streams; those between stem and head are main."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skipway.wiring.depth import only_read
from skipway.wiring.drops import dropped
from skipway.wiring.sites import Place, Term, scale_of, shortcut_of
from skipway.wiring.states import DROPPED, PART, RANDOM, Join, State
from skipway.wiring.structure import Branch, Site, Stream

if TYPE_CHECKING:
    from skipway.wiring.graph import Graph
    from skipway.wiring.record import Call


@dataclass(slots=True, eq=False)
class Flow:
    """A stream while it is being recovered: its places in order and the public value made of them."""

    root: State
    places: list[Place]
    main: bool = False
    stream: Stream | None = None
    outer: int = -1                 # node of the join in whose branch it lives, or -1


def assemble(g: "Graph", places: list[Place]) -> list[Flow]:
    """Flows in order of use, main ones first."""
    whole = tuple(n for n in g.record.outputs if math.prod(g.nodes[n].shape) > 1) or g.record.outputs
    live, principal = ancestors(g, whole), ancestors(g, whole[:1])
    inner, long = _inner(g, [p for p in places if p.join.node in live or not g.users[p.join.node]])
    flows: dict[tuple[int, State, int], Flow] = {}
    sides = _sides(places)
    writes: dict[tuple[int, State, int], dict[int, list[Join]]] = {}
    for place in places:
        if place.join.node in long:
            continue
        outer = inner.get(place.join.node, -1)
        root = place.join.before.root if outer < 0 else _start(place.join.before)
        key = outer, root, sides[place.join.node]
        if not _reread(g, place.join, writes.setdefault(key, {})):
            flows.setdefault(key, Flow(root, [], outer=outer)).places.append(place)
    for (outer, _, _), flow in flows.items():
        flow.main = outer < 0 and any(p.join.node in live for p in flow.places)
        if flow.main and not any(p.join.node in principal for p in flow.places):
            flow.main = len(flow.places) > 1
        if flow.main and _head(g, flow, list(flows.values())):
            flow.main = False
    for flow in flows.values():
        _settle(g, flow)
    ordered = sorted(flows.values(), key=lambda f: (not f.main, f.places[0].join.node))
    taken: dict[str, int] = {}
    stems, drops = _stems(g, ordered), dropped(g)
    for flow in ordered:
        flow.stream = _stream(g, flow, taken, stems, drops)
    return ordered


def _reread(g: "Graph", join: Join, writes: dict[int, list[Join]]) -> bool:
    """Whether a join brings what was written before to a sum that does not continue that write: a later weighted mean of the same values."""
    node, value = g.nodes[join.node], join.branch
    if value == join.node:                                  # multiplied by a weight and added at once
        value = next((i for i in node.ins if i != join.shortcut and g.signal[i] and g.nodes[i].shape == node.shape), value)
    earlier = writes.setdefault(value, [])
    earlier.append(join)
    return any(not join.before.has(j.after) for j in earlier[:-1])


def _sides(places: list[Place]) -> dict[int, int]:
    """Node of a join -> which of the streams it is on that part from one state because a branch is added to each of them (ResiDual); mostly 0."""
    sides: dict[int, int] = {}
    made: dict[State, int] = {}
    writes: dict[int, list[Join]] = {}
    for join in (p.join for p in places):
        state: State | None = join.before
        while state is not None and state not in made:
            state = state.prev
        side = made[state] if state is not None else 0
        if any(sides[j.node] == side and not join.before.has(j.after) for j in writes.get(join.branch, [])):
            side = max(sides.values()) + 1
        sides[join.node] = made[join.after] = side
        writes.setdefault(join.branch, []).append(join)
    return sides


def _settle(g: "Graph", flow: Flow) -> None:
    """A sum at the end of a stream that alone is normed, by nothing in its own block, is followed by a final norm, not a post-norm."""
    last = flow.places[-1]
    if last.placement != "post" or len(flow.places) < 2 or any(p.placement == "post" for p in flow.places[:-1]):
        return
    block, norm = _block(g, last), last.norms[0].call
    if block.path and not (g.record.calls[norm].path.startswith(block.path + ".") and _within(g, norm, block.id)):
        last.placement, last.norm, last.norms = "none", None, []


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


def real(g: "Graph", places: list[Place]) -> list[Place]:
    """Places without the sums that only look like joins; the graph forgets those too."""
    if g.scores or g.grids or len(places) > 1:
        places = [p for p in places if not _passing(g, p, places)]
        g.joins.found = [p.join for p in places]
    return places


def _passing(g: "Graph", place: Place, places: list[Place]) -> bool:
    """A sum that is read and then left behind, while one of its operands goes on as the stream: positions added to a query.

    Scores of an attention, to which a mask is added, and places at which an image is sampled are other such sums.
    """
    join = place.join
    if join.node in g.scores:
        return True
    later = [p for p in places if p.join.node > join.node]
    if any(p.join.before.has(join.after) for p in later):
        return False
    if join.node in g.grids:
        return True
    carried = _read(g.state[join.branch])
    for other in later:
        if join.node not in _inside(g, other):
            continue
        if other.join.before in carried:
            return True
        given = join.branch < g.record.calls[other.call].first      # and was not computed by the forward that adds it
        if other.join.before is join.before and _within(g, place.call, other.call) and (place.call != other.call or given):
            return True
    return False


def _inside(g: "Graph", place: Place) -> set[int]:
    """What the branch of a join is computed from, back to the states of the stream that it reads."""
    if place.inside is None:
        read = {s.node for h in place.join.region.hits if (s := g.state[h]) is not None and s.via == "join"}
        place.inside = set(place.join.region.nodes) | place.join.region.hits | read
    return place.inside


def _read(state: State | None) -> list[State]:
    """A state and what it is a norm or an activation of."""
    found: list[State] = []
    while state is not None:
        found.append(state)
        state = state.prev if state.via in ("norm", "centred", "act") else None
    return found


def _inner(g: "Graph", places: list[Place]) -> tuple[dict[int, int], set[int]]:
    """Joins that lie inside the branch of another join, with that join; and long skips over blocks of other streams."""
    joined = {p.join.node: p for p in places}
    found: dict[int, int] = {}
    long: set[int] = set()
    for place in places:
        join = place.join
        size, home = math.prod(g.nodes[join.node].shape), _home(g, place)
        numbered = block_of(g, place)[0].rpartition(".")[2].isdigit()
        held = [joined[n] for n in join.region.nodes if n in joined and joined[n] is not place and n > join.before.node]
        held = [o for o in held if not continues(o.join.before, join.before) and o.join.before.root.node >= join.before.root.node]
        blocks = {block_of(g, o) for o in held if block_of(g, o)[0].rpartition(".")[2].isdigit()}
        outside: set[tuple[str, int]] = set()
        for other in held:
            n = other.join.node
            top = not numbered and len(blocks) > 1          # an add outside of all blocks does not enclose blocks
            if top or not _within(g, other.call, home) or (home == 0 and math.prod(g.nodes[n].shape) > 4 * size):
                outside.add(block_of(g, other))
            else:
                found.setdefault(n, join.node)
        if len(outside) > 1 and not _direct(g, place, {o.join.node for o in held}):
            long.add(join.node)
    return {n: outer for n, outer in found.items() if outer not in long}, long


def _direct(g: "Graph", place: Place, others: set[int]) -> bool:
    """Whether the branch also reads its stream past the joins that lie between, as a cross-attention reads its memory or its query."""
    region = _inside(g, place)
    last = max((n for n in place.join.region.nodes if n in g.attention), default=None)
    if last is None:
        return False
    stack = [g.attention[last][0], g.attention[last][-1]]
    seen = set(stack)
    while stack:
        n = stack.pop()
        if n in place.join.region.hits:
            return True
        for i in g.nodes[n].ins:
            if i in region and i not in seen and i not in others:
                seen.add(i)
                stack.append(i)
    return False


def _home(g: "Graph", place: Place) -> int:
    """The call that a join closes: its numbered block; else the module that adds, or the one around where that holds nothing learned."""
    calls = g.record.calls
    call = calls[place.call]
    while call.parent >= 0 and call.parent != call.id:
        if call.path.rpartition(".")[2].isdigit():
            return call.id
        call = calls[call.parent]
    own = calls[place.call]
    return own.id if any(g.learned[n] for n in range(own.first, own.last)) or own.parent < 0 else own.parent


def _within(g: "Graph", call: int, outer: int) -> bool:
    while call != outer and call > 0:
        call = g.record.calls[call].parent
    return call == outer


def continues(state: State, first: State) -> bool:
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
    """A single join on a value smaller than the stream that it was pooled or picked from: a pooling head."""
    if len(flow.places) > 1:
        return False
    join = flow.places[0].join
    size = math.prod(g.nodes[join.node].shape)
    earlier = [f.places[-1].join.node for f in flows if len(f.places) > 1 and f.places[-1].join.node < flow.root.node]
    if not any(size < math.prod(g.nodes[n].shape) for n in earlier):
        return False
    sources = [flow.root.node, *[i for i in g.nodes[flow.root.node].ins if g.signal[i]]]
    return any(g.marks[i] & PART or (s is not None and s.via in ("attention", "product", "pool")) for i in sources for s in [g.state[i]])


def _stream(g: "Graph", flow: Flow, taken: dict[str, int], stems: dict[State, int], drops: dict[State, str]) -> Stream:
    calls = g.record.calls
    blocks: dict[tuple[str, int], int] = {}
    sites = []
    post = {p.join.after for p in flow.places if p.placement == "post"}
    after: dict[State, int] = {}
    for index, place in enumerate(flow.places):
        layer = blocks.setdefault(block_of(g, place), len(blocks))
        sites.append(_site(g, place, index, layer, post, after, drops))
        after[place.join.after] = index + 1
    lanes = g.mixed.get(flow.root, 1) if any(p.join.node in g.lane or p.join.node in g.parts for p in flow.places) else 1
    base = _name(calls[g.nodes[flow.root.node].call].path, [p.module for p in flow.places])
    taken[base] = taken.get(base, 0) + 1
    name = base if taken[base] == 1 else f"{base} {taken[base]}"
    stem = calls[g.nodes[flow.root.node].call].path if g.nodes[flow.root.node].op != "input" else g.nodes[flow.root.node].name
    return Stream(name, flow.main, lanes, stem, final_norm(g, flow, stems), tuple(sites))


def _line(g: "Graph", n: int) -> tuple[str, int] | None:
    """Source line of an operation: its own, that of the operand that it closes (a stack that is summed), or that of its module's call."""
    call = g.nodes[n].call
    for i in (n, *g.nodes[n].ins):
        node = g.nodes[i]
        if node.where is not None and node.call == call:
            return node.where
    return g.record.calls[call].where


def _last_join(state: State) -> State:
    """The newest join at or before a state, or where its stream starts."""
    while state.via != "join" and state.prev is not None:
        state = state.prev
    return state


def _earlier(state: State, after: dict[State, int], index: int) -> int | None:
    """How many joins come before a state, where that is not all of them. `after`: states that joins made -> joins up to there."""
    walked: State | None = state
    while walked is not None and walked not in after:
        walked = walked.prev
    before = after[walked] if walked is not None else 0
    return before if before < index else None


def _site(g: "Graph", place: Place, index: int, layer: int, post: set[State], after: dict[State, int], drops: dict[State, str]) -> Site:
    join = place.join
    marks = 0
    gain: float | None = place.terms[0].gain if place.terms else None
    for term in place.terms:
        marks |= term.marks
        if term.gain != gain:
            gain = None
    scale, constant = scale_of(marks, gain)
    reads = {s for t in place.terms for s in t.reads}
    older = bool(reads) and all(s.depth < _last_join(join.before).depth for s in reads)
    file, line = _line(g, join.node) or (None, None)
    branches = tuple(_branch(g, join, t, drops) for t in place.terms)
    read_from = [_earlier(s, after, index) for s in reads]
    norms = tuple(dict.fromkeys(g.record.calls[n.call].path for n in place.norms))
    return Site(index, layer, place.module, file, line, place.placement, place.norm, norms, shortcut_of(g, join, post), _rounded(join.gain), scale,
                _rounded(constant) if scale in ("none", "constant") else None, len(place.terms) > 1 or older, join.in_place, branches,
                _earlier(join.before, after, index), None if None in read_from else max((n for n in read_from if n is not None), default=None))


def _branch(g: "Graph", join: Join, term: Term, drops: dict[State, str]) -> Branch:
    calls = g.record.calls
    ends = [term.end.norm.source] if term.end.norm is not None else []
    states = [g.state[n] for n in (join.branch, term.end.node, *ends)]
    drop = next((drops[s] for s in states if s is not None and s in drops), "none")
    if drop == "none" and (term.marks | join.marks) & DROPPED:
        drop = "path" if (term.marks | join.marks) & RANDOM else "dropout"
    return Branch(term.kind, term.modules, tuple(dict.fromkeys(calls[n.call].path for n in term.in_norms)),
                  (calls[term.out_norm.call].path,) if term.out_norm is not None else (), drop)


def block_of(g: "Graph", place: Place) -> tuple[str, int]:
    """The repeated block a join stands in: the innermost enclosing module whose name is a number, and which call of it."""
    block = _block(g, place)
    return block.path, block.number


def _block(g: "Graph", place: Place) -> "Call":
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
    return numbered if numbered is not None else calls[place.call]


def final_norm(g: "Graph", flow: Flow, stems: dict[State, int]) -> str | None:
    """Path of the module that norms the last state as a whole, or None. A norm before the stem of a next stream is not one."""
    last = flow.places[-1]
    after = last.join.after
    if last.placement == "post":                    # the post-norm belongs to the site; another one on top of it is a final norm
        made = next((s for s in g.state[after.node:] if s is not None and s.norm is last.norms[0]), None)
        if made is None:
            return None
        after = made
    regions = {n for p in flow.places for n in p.join.region.nodes}
    lanes = max(g.mixed.get(flow.root, 1), 1)
    size = math.prod(g.nodes[after.node].shape)
    through = ("norm", "centred", "stack", "pool") if lanes > 1 else ("norm", "centred")
    for node in g.nodes[after.node + 1:]:
        state = g.state[node.id]
        if state is None or state.norm is None or state.node != node.id or node.id in regions or not state.has(after):
            continue
        if only_read(g, node.id) or stems.get(state) == g.record.calls[state.norm.call].parent:
            continue                                    # a norm and the stem of the next stream in one forward: a transition
        halved = len(node.shape) == len(g.nodes[after.node].shape) and math.prod(node.shape) * 2 >= size
        if not g.marks[state.norm.source] & PART and ((math.prod(node.shape) * lanes >= size and _passes(state, after, through))
                                                      or (halved and _passes(state, after, (*through, "pool")))):
            return g.record.calls[state.norm.call].path or type(g.record.model).__name__
    return None


def _stems(g: "Graph", flows: list[Flow]) -> dict[State, int]:
    """States from which one learned operation makes the first state of a main stream -> the call around that operation."""
    found: dict[State, int] = {}
    for flow in flows:
        node = g.nodes[flow.root.node]
        if flow.main and g.learned[node.id]:
            found.update({s: g.record.calls[node.call].parent for i in node.ins if (s := g.state[i]) is not None})
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


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 9)
