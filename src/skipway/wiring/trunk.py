"""The trunk: nodes through which every path from an input to the principal output runs, and the sublayers that stand on it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from skipway.wiring import operations as ops

if TYPE_CHECKING:
    from skipway.wiring.graph import Graph
    from skipway.wiring.record import Call


@dataclass(frozen=True)
class Unit:
    """A stretch of the trunk that no path goes around: `learned` are its learned nodes, `start` and `end` trunk nodes."""

    start: int
    end: int
    learned: tuple[int, ...]
    attends: bool

    @property
    def sublayer(self) -> bool:
        """Whether it is more than one linear map: attention, or two learned operations in a row."""
        return self.attends or len(self.learned) > 1


class Trunk:
    """Cut nodes of the signal graph, per input, and what stands between them."""

    def __init__(self, g: "Graph") -> None:
        self.g = g
        self.cuts: list[int] = []
        self.inside: dict[int, list[int]] = {}          # cut -> nodes between the cut before and it
        outputs = g.record.outputs
        if outputs:
            for starts in _sources(g):
                self._sweep(starts, outputs[0])
        self.bypassed: set[int] = set()                 # learned nodes that some join goes around
        for join in g.joins.found:
            self.bypassed.update(n for n in join.region.nodes if g.learned[n])
            beyond = any((s := g.state[n]) is not None and not join.before.has(s) for n in join.region.hits)
            if beyond:                                  # a long skip: what it goes around is a trunk of its own
                self._sweep([join.before.node], join.branch)
        self.cut_set = set(self.cuts)
        self.held = {n for nodes in self.inside.values() for n in nodes}

    def _sweep(self, starts: list[int], sink: int) -> None:
        """A node is a cut where no edge of the paths from `starts` to `sink` jumps over it."""
        g = self.g
        down = set(starts)
        for node in g.nodes[min(starts) + 1: sink + 1]:
            if g.signal[node.id] and node.id not in down and any(i in down for i in node.ins):
                down.add(node.id)
        if sink not in down:
            return
        relevant, stack = {sink}, [sink]
        while stack:
            for i in g.nodes[stack.pop()].ins:
                if i in down and i not in relevant:
                    relevant.add(i)
                    stack.append(i)
        order = sorted(relevant)
        last: dict[int, int] = {}
        for v in order:
            for i in g.nodes[v].ins:
                if i in relevant:
                    last[i] = v
        reach = max(starts) if len(starts) > 1 else -1
        between: list[int] = []
        for v in order:
            if reach <= v:
                if v not in self.inside:
                    self.inside[v] = between
                    self.cuts.append(v)
                between = []
            else:
                between.append(v)
            reach = max(reach, last.get(v, v))

    def units(self) -> list[Unit]:
        """Maximal stretches between joins and concatenations, in order; stretches without a learned operation are left out."""
        g = self.g
        found: list[Unit] = []
        joined = {j.node for j in g.joins.found}
        learned: list[int] = []
        attends = False
        start = -1
        for k, v in enumerate(self.cuts):
            state = g.state[v]
            skipped = v in joined or self._carries(v) or self._beside(v) or (state is not None and state.node == v and state.via == "difference")
            if skipped:
                if learned:                             # a stack that is summed next is part of that join
                    closed = v if v in joined else next((c for c in self.cuts[k + 1:k + 12] if c in joined), v)
                    found.append(Unit(start, closed, tuple(learned), attends))
                learned, attends, start = [], False, v
                continue
            made = (*self.inside[v], v) if state is not None and state.node == v else ()     # else a gate lies around a value that goes on
            own = [n for n in made if g.learned[n] and g.nodes[n].op not in ops.LOOKUPS]
            if not self.bypassed.isdisjoint(own):
                learned, attends, start = [], False, v
                continue
            learned += own
            attends = attends or any(n in g.attention for n in own)
            if start < 0:
                start = v
        if learned:
            found.append(Unit(start, self.cuts[-1], tuple(learned), attends))
        return found

    def _carries(self, n: int) -> bool:
        """Whether a concatenation takes a value along beside what was computed from it: a skip, as in a U-Net."""
        g = self.g
        if g.nodes[n].op not in ("cat", "stack"):
            return False
        parts = [i for i in g.nodes[n].ins if g.signal[i]]
        kept = any((s := g.state[i]) is not None and s.via == "part" for i in parts)          # half of the channels goes around
        return kept or any(i != j and g.computed_from(j, i) for i in parts for j in parts)

    def _beside(self, n: int) -> bool:
        """Whether a sum takes one bent map along beside a sublayer: a gated projection stands in for the skip."""
        g, inside = self.g, set(self.inside[n])
        counts = []
        for part in g.terms.get(n, ()):
            seen, stack = set[int](), [part]
            while stack:
                v = stack.pop()
                if v in inside and v not in seen:
                    seen.add(v)
                    stack.extend(g.nodes[v].ins)
            counts.append(sum(g.learned[v] for v in seen))
        return len(counts) > 1 and min(counts) == 1 < max(counts)

    def standing(self, call: "Call") -> Unit | None:
        """What a module call puts on the trunk where it keeps the shape of its input and holds no join; None otherwise."""
        g = self.g
        ins = [n for _, n in call.ins if g.signal[n]]
        outs = [n for _, n in call.outs if g.signal[n]]
        if not ins or not outs or g.nodes[outs[0]].shape not in [g.nodes[n].shape for n in ins] or call.last <= call.first:
            return None
        span = range(call.first, call.last)
        if g.state[outs[0]] in [g.state[n] for n in ins]:
            return None                                 # a gate: the value itself goes on
        if outs[0] not in self.cut_set or any(j.node in span for j in g.joins.found) or any(n in span for n, _, _ in g.doubled):
            return None
        learned = [n for n in span if g.learned[n] and (n in self.cut_set or n in self.held)]
        if not learned or not self.bypassed.isdisjoint(learned) or any(n in self.cut_set and self._carries(n) for n in span):
            return None
        if self._goes_around(call, outs[0], set(ins)):
            return None
        return Unit(ins[0], outs[0], tuple(learned), any(n in g.attention for n in learned))


    def _goes_around(self, call: "Call", out: int, ins: set[int]) -> bool:
        """Whether some path leads from an input of a call to its output through nothing learned: `maximum(x, F(x))`."""
        g = self.g
        seen, stack = {out}, [out]
        while stack:
            n = stack.pop()
            if n in ins:
                return True
            if n < call.first or g.learned[n]:
                continue
            fresh = [i for i in g.nodes[n].ins if g.signal[i] and i not in seen]
            seen.update(fresh)
            stack.extend(fresh)
        return False


def _sources(g: "Graph") -> list[list[int]]:
    """Where signal begins, one list an input: a floating input itself, or the embeddings looked up by an integer one."""
    found: list[list[int]] = []
    lookups = [n.id for n in g.nodes if g.learned[n.id] and n.op in ops.LOOKUPS]
    for node in g.nodes:
        if node.op == "input" and g.signal[node.id]:
            found.append([node.id])
    for n in lookups:
        if not any(g.signal[i] for i in g.nodes[n].ins):
            found.append([n])
    return found
