"""Step 4c: what runs between two places other than along a stream: a memory that is read, a stream made of another, a long skip."""

from typing import TYPE_CHECKING

from skipway.wiring.depth import only_read
from skipway.wiring.states import State
from skipway.wiring.structure import Link

if TYPE_CHECKING:
    from skipway.wiring.graph import Graph
    from skipway.wiring.sites import Place
    from skipway.wiring.streams import Flow

Spot = tuple[int, int]          # which flow, and how many of its joins came before


def links(g: "Graph", flows: "list[Flow]", places: "list[Place]") -> tuple[Link, ...]:
    """All links of a model, in order of their kinds and places; each once. A stream that begins beside a long skip follows its other part."""
    finder = _Finder(g, flows)
    found = [*finder.follows(), *finder.reads(), *finder.long_adds(places), *finder.concatenations(), *finder.inside()]
    beside = {(a, b) for kind, a, b in found if kind == "concat"}
    found = [x for x in found if x[0] != "follows" or x[1:] not in beside]
    names = [f.stream.name if f.stream is not None else "" for f in flows]
    return tuple(dict.fromkeys(Link(kind, names[a[0]], a[1], names[b[0]], b[1]) for kind, a, b in found))


class _Finder:
    """Where on which stream every node comes from."""

    def __init__(self, g: "Graph", flows: "list[Flow]") -> None:
        self.g, self.flows = g, flows
        self.at: dict[State, Spot] = {}
        for f, flow in enumerate(flows):
            self.at.setdefault(flow.root, (f, 0))
            for k, place in enumerate(flow.places):
                self.at[place.join.after] = (f, k + 1)
        self.origins = self._origins()
        # What the first state of each stream is computed from.
        self.made = [tuple(s for s in _latest([self.origins[i] for i in g.nodes[flow.root.node].ins]) if s[0] != f) for f, flow in enumerate(flows)]

    def spot(self, state: State | None) -> Spot | None:
        """The place on a stream that a state is, or is a norm, an activation or a pool of."""
        while state is not None:
            if state in self.at:
                return self.at[state]
            state = state.prev
        return None

    def _origins(self) -> list[tuple[Spot, ...]]:
        """For every node the last places on streams that it was computed from, at most one a stream."""
        g = self.g
        spots: dict[State, Spot | None] = {}
        found: list[tuple[Spot, ...]] = []
        for node in g.nodes:
            state = g.state[node.id]
            if state is None:
                found.append(())
                continue
            if state not in spots:
                spots[state] = self.spot(state)
            own = spots[state]
            found.append((own,) if own is not None else _latest([found[i] for i in node.ins]))
        return found

    def follows(self) -> "list[tuple[str, Spot, Spot]]":
        """Main streams whose first state is computed from other ones."""
        return [("follows", spot, (f, 0)) for f, made in enumerate(self.made) if self.flows[f].main for spot in made if self.flows[spot[0]].main]

    def reads(self) -> "list[tuple[str, Spot, Spot]]":
        """Branches of main streams that read another main stream."""
        g = self.g
        out = []
        for f, flow in enumerate(self.flows):
            for k, place in enumerate(flow.places if flow.main else ()):
                for term in place.terms:
                    own = set(term.region.nodes) | term.region.hits
                    brought = _latest([self.origins[i] for n in term.region.nodes for i in g.nodes[n].ins if g.signal[i] and i not in own])
                    out += [("reads", spot, (f, k)) for spot in brought if spot[0] != f and self.flows[spot[0]].main]
        return out

    def long_adds(self, places: "list[Place]") -> "list[tuple[str, Spot, Spot]]":
        """Sums of a stream with a much older state of itself, or with what another stream made of it."""
        out = []
        for _, older, newer in self.g.joins.long:
            a, b = self.spot(older), self.spot(newer)
            if a is not None and b is not None and a != b:
                out.append(("add", a, b))
        told = {id(p) for flow in self.flows for p in flow.places}
        for place in places:
            if id(place) in told:
                continue
            before = self.spot(place.join.before)
            if before is None:
                continue
            f = before[0]
            end = (f, sum(p.join.node < place.join.node for p in self.flows[f].places))
            brought = [spot for spot in self.origins[place.join.branch] if spot[0] != f]
            out += [("add", spot, end) for spot in brought] or ([("add", before, end)] if before != end else [])
        return out

    def concatenations(self) -> "list[tuple[str, Spot, Spot]]":
        """States that are set beside what was computed from them, as in a U-Net."""
        g = self.g
        out = []
        for node in g.nodes:
            if node.op not in ("cat", "stack") or not g.signal[node.id] or only_read(g, node.id):
                continue
            parts = [self.origins[i] for i in node.ins if self.origins[i]]
            kept = [p[0] for p in parts if len(p) == 1 and any(self._after(spot, p[0]) for other in parts for spot in other)]
            end = self._next(node.id) if kept else None
            out += [("concat", spot, end) for spot in dict.fromkeys(kept) if end is not None and spot != end and self.flows[spot[0]].main]
        return out

    def _after(self, later: Spot, earlier: Spot) -> bool:
        """Whether a place comes after another on the same stream, or on a stream made of it."""
        seen: set[int] = set()
        stack = [later]
        while stack:
            f, k = stack.pop()
            if f == earlier[0]:
                if k > earlier[1] or (k == earlier[1] and f != later[0]):
                    return True
            elif f not in seen:
                seen.add(f)
                stack += self.made[f]
        return False

    def _next(self, n: int) -> Spot | None:
        """The first place on a main stream that a node leads to."""
        g = self.g
        own = self.spot(g.state[n])
        if own is not None:
            return own
        seen, stack, best = {n}, [n], len(g.nodes)
        while stack:
            for u in g.users[stack.pop()]:
                if u in seen or u >= best:
                    continue
                seen.add(u)
                state = g.state[u]
                if state is not None and state in self.at and self.flows[self.at[state][0]].main:
                    best = u
                elif g.signal[u]:
                    stack.append(u)
        state = g.state[best] if best < len(g.nodes) else None
        return self.at[state] if state is not None else None

    def inside(self) -> "list[tuple[str, Spot, Spot]]":
        """Streams that live inside a branch."""
        at = {p.join.node: (f, k) for f, flow in enumerate(self.flows) for k, p in enumerate(flow.places)}
        return [("inside", (f, 0), at[flow.outer]) for f, flow in enumerate(self.flows) if flow.outer in at]


def _latest(parts: list[tuple[Spot, ...]]) -> tuple[Spot, ...]:
    """The last place on each stream among those of several operands."""
    parts = [p for p in parts if p]
    if not parts:
        return ()
    first = parts[0]
    if all(p == first for p in parts):
        return first
    last: dict[int, int] = {}
    for part in parts:
        for f, k in part:
            last[f] = max(k, last.get(f, 0))
    return tuple(sorted(last.items()))
