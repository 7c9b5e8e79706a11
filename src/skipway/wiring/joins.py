"""Step 3: what a join is. The definition stands in `Joins.combine` and nowhere else.

A sum of two signals joins when one operand (the shortcut) carries a state that the other (the branch) was computed from through
at least one learned operation. A shortcut that is itself a learned linear map, of another shape, is a projection when its
partner is not linear. Everything else is a sum of branches.
"""

from typing import TYPE_CHECKING

from skipway.wiring.states import GATED, MIXED, MOVED, PART, Join, Region, State

if TYPE_CHECKING:
    from skipway.wiring.graph import Graph
    from skipway.wiring.record import Node

LONG = 4        # a skip over more joins than this is a long skip, not a double one


class Joins:
    """Decides for every sum of two signals what it is, and keeps the joins in order."""

    def __init__(self, graph: "Graph") -> None:
        self.graph = graph
        self.found: list[Join] = []
        self.by_state: dict[State, Join] = {}
        self.long: list[tuple[int, State, State]] = []      # sums of a state with a much older one

    def combine(self, node: "Node", a: int, b: int, fa: float | None, fb: float | None) -> None:
        """Say what `fa * a + fb * b` is. Either operand may be the shortcut."""
        g = self.graph
        sa, sb = g.state[a], g.state[b]
        assert sa is not None and sb is not None
        if sa is sb:
            self._same(node, a, b, fa, fb)
            return
        if self._double(node, a, b, fa, fb) or self._double(node, b, a, fb, fa) or self._shards(node, a, b, fa, fb):
            return
        first, second = ((a, b, fa), (b, a, fb)) if sa.root.node <= sb.root.node else ((b, a, fb), (a, b, fa))
        for shortcut, branch, factor in (first, second):
            state = g.state[shortcut]
            assert state is not None
            region = self.reach(branch, state)
            if region is not None and region.learned:
                self._join(node, shortcut, branch, factor, region, state, "identity")
                return
        for shortcut, branch, factor in (first, second):
            base = g.linear[shortcut]
            if base is None or g.linear[branch] is base or not self._projects(shortcut, base):
                continue
            region, own = self.reach(branch, base), self.reach(shortcut, base)
            if region is not None and region.learned and own is not None and not self._shared(region, own):
                self._join(node, shortcut, branch, factor, region, base, "projection")
                return
        self._sum(node, a, b)

    def combine_virtual(self, node: "Node", base: int, alpha: float, beta: float = 1.0) -> None:
        """The same for an operation that multiplies and adds at once: its product bears the operation's own number."""
        g = self.graph
        n = node.id
        state = g.state[base]
        product = g.state[n]
        assert state is not None and product is not None
        region = self.reach(n, state, tuple(i for i in node.ins if i != base))
        if region is not None and region.learned:
            self._join(node, base, n, beta, region, state, "identity")
        elif product is state:
            g._carry(node, base, 0, None)
        else:
            g._fresh(node, "sum")
            g.terms[n] = (base,)

    # the cases

    def _same(self, node: "Node", a: int, b: int, fa: float | None, fb: float | None) -> None:
        """Both operands carry one state."""
        g = self.graph
        parts = (g.marks[a] | g.marks[b]) & (PART | MOVED | GATED | MIXED)
        ga, gb = _times(g.gain[a], fa), _times(g.gain[b], fb)
        if parts or ga is None or gb is None:
            convex = g.marks[a] & GATED and g.marks[b] & GATED
            g._fresh(node, "mixed" if convex else "sum", g.state[a])
        elif abs(ga + gb) < 1e-9:
            g._fresh(node, "difference")
        elif ga == gb:
            g.doubled.append((node.id, a, b))
            g._fresh(node, "self_add", g.state[a])
        else:
            g._carry(node, a)
            g.gain[node.id] = ga + gb

    def _double(self, node: "Node", a: int, b: int, fa: float | None, fb: float | None) -> bool:
        """`b` is a later state of the very stream that `a` carries: the identity path is there twice."""
        g = self.graph
        sa, sb = g.state[a], g.state[b]
        assert sa is not None and sb is not None
        passed: list[Join] = []
        state: State | None = sb
        through = _times(g.gain[b], fb)
        while state is not None and state is not sa and state.via == "join" and state.depth > sa.depth:
            join = self.by_state[state]
            passed.append(join)
            through = _times(through, join.gain)
            state = state.prev
        if state is not sa or not passed:
            return False
        total = None if through is None else _plus(_times(g.gain[a], fa), through)
        if total is not None and abs(total) < 1e-9:
            g._fresh(node, "difference")
        elif len(passed) > LONG or total is None:
            self.long.append((node.id, sa, sb))
            g._carry(node, b)
        else:
            self._fold(node, a, b, passed, total)
        return True

    def _shards(self, node: "Node", a: int, b: int, fa: float | None, fb: float | None) -> bool:
        """Two joins of one state are summed: each brought the identity along."""
        g = self.graph
        ja, jb = self._last(a), self._last(b)
        if ja is None or jb is None or ja.before is not jb.before:
            return False
        total = _plus(_times(_times(g.gain[a], fa), ja.gain), _times(_times(g.gain[b], fb), jb.gain))
        if total is None:
            return False
        self._fold(node, ja.shortcut, b, [ja, jb], total)
        return True

    def _last(self, n: int) -> Join | None:
        state = self.graph.state[n]
        return self.by_state.get(state) if state is not None else None

    def _fold(self, node: "Node", shortcut: int, branch: int, inner: list[Join], gain: float) -> None:
        """Tell several joins around one sublayer as one join with their total gain."""
        g = self.graph
        before = g.state[shortcut]
        assert before is not None
        for join in inner:
            self.found.remove(join)
        every = sorted({n for j in inner for n in j.region.nodes} | {j.node for j in inner})
        region = Region(every, set().union(*[j.region.hits for j in inner]), True)
        after = g._fresh(node, "join", before)
        flat = tuple(j for i in inner for j in (i.folded or (i,)))
        self._keep(Join(node.id, shortcut, branch, region, before, after, "identity", gain, tuple(sorted(flat, key=lambda j: j.node)), node.write))

    def _join(self, node: "Node", shortcut: int, branch: int, factor: float | None, region: Region, before: State, kind: str) -> None:
        g = self.graph
        gain = _times(g.gain[shortcut], factor) if kind == "identity" else 1.0
        read = [g.gain[n] for n in sorted(region.hits) if g.state[n] is before]
        if gain is not None and read and read[-1]:
            gain /= read[-1]
        if g.marks[shortcut] & MIXED:
            gain = 1.0
        after = g._fresh(node, "join", before)
        self._keep(Join(node.id, shortcut, branch, region, before, after, kind, gain, (), node.write))

    def _keep(self, join: Join) -> None:
        self.found.append(join)
        self.by_state[join.after] = join

    def _sum(self, node: "Node", a: int, b: int) -> None:
        g = self.graph
        g._fresh(node, "sum")
        g.terms[node.id] = (a, b)
        if g.linear[a] is not None and g.linear[a] is g.linear[b]:
            g.linear[node.id] = g.linear[a]
        g.gate[node.id] = g.gate[a] & g.gate[b]

    def _projects(self, shortcut: int, base: State) -> bool:
        """Whether a linear shortcut is a projection of the stream: a convolution, or a matrix that changes the width."""
        g = self.graph
        new, old = g.nodes[shortcut].shape, g.nodes[base.node].shape
        if len(new) != len(old) or len(new) < 2 or new[0] != old[0]:
            return False
        return len(new) >= 4 or (new != old and new[:-1] == old[:-1])

    def _shared(self, region: Region, own: Region) -> bool:
        """Whether the branch runs through the projection itself, as an activation of it does."""
        both = set(region.nodes).intersection(own.nodes)
        return any(self.graph.learned[n] for n in both)

    # reachability

    def reach(self, start: int, carried: State, among: tuple[int, ...] | None = None) -> Region | None:
        """The nodes through which `start` descends from `carried` or a state that it continues; None where it does not.

        `among` limits the operands of `start` that count.
        """
        g = self.graph
        origin, dead = carried.root.node, carried.root.dead
        if start <= origin or start in dead:
            return None
        found: dict[int, int] = {}                          # 0 no, 1 yes, 2 through something learned
        hits: set[int] = set()
        stack = [start]
        nodes, signal, states, learned = g.nodes, g.signal, g.state, g.learned
        while stack:
            v = stack[-1]
            if v in found:
                stack.pop()
                continue
            state = states[v]
            if v != start and state is not None and state.root is carried.root and carried.has(state):
                found[v] = 1
                hits.add(v)
                stack.pop()
                continue
            ins = [i for i in (among if v == start and among is not None else nodes[v].ins) if signal[i] and i >= origin and i not in dead]
            missing = [i for i in ins if i not in found]
            if missing:
                stack.extend(missing)
                continue
            best = max([found[i] for i in ins], default=0)
            if best == 0 and among is None:
                dead.add(v)
            found[v] = 2 if best and learned[v] else best
            stack.pop()
        if not found[start]:
            return None
        return Region(sorted(n for n, r in found.items() if r and n not in hits), hits, found[start] == 2)


def _times(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a * b


def _plus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b
