"""Step 3: what a join is. The definition stands in `Joins.combine` and nowhere else.

A sum of two signals joins when one operand (the shortcut) carries a state that the other (the branch) was computed from through
at least one learned operation. A shortcut that is itself a learned linear map, of another shape, is a projection when its
partner is not linear. Everything else is a sum of branches.
"""

from typing import TYPE_CHECKING, Any

from skipway.wiring import fractions
from skipway.wiring import operations as ops
from skipway.wiring.states import CONSTANT, GATED, MIXED, MOVED, PART, Join, Region, State

if TYPE_CHECKING:
    from skipway.wiring.graph import Graph
    from skipway.wiring.record import Node

NORMED = ("norm", "centred")
LONG = 4        # a skip over more joins than this is a long skip, not a double one; one that is written and run once is so over two


class Joins:
    """Decides for every sum of two signals what it is, and keeps the joins in order."""

    def __init__(self, graph: "Graph") -> None:
        self.graph = graph
        self.found: list[Join] = []
        self.by_state: dict[State, Join] = {}
        self.long: list[tuple[int, State, State]] = []      # sums of a state with a much older one
        self._lines: dict[tuple[str, int], list[int]] = {}  # source line -> its adds; made where it is asked for

    def combine(self, node: "Node", a: int, b: int, fa: float | None, fb: float | None) -> None:
        """Say what `fa * a + fb * b` is. Either operand may be the shortcut."""
        g = self.graph
        sa, sb = g.state[a], g.state[b]
        assert sa is not None and sb is not None
        if sa is sb:
            if not fractions.mix(g, node, a, b):
                self._same(node, a, b, fa, fb)
            return
        if fractions.sibling(g, node, a, b) or self._grows(node, a, b, fa, fb):
            return
        if self._double(node, a, b, fa, fb) or self._double(node, b, a, fb, fa) or self._shards(node, a, b, fa, fb):
            return
        if self._merge(node, sa, sb):
            return
        first, second = ((a, b, fa, fb), (b, a, fb, fa)) if sa.root.node <= sb.root.node else ((b, a, fb, fa), (a, b, fa, fb))
        for shortcut, branch, factor, other in (first, second):
            state = g.state[shortcut]
            assert state is not None
            if g.statistic.get(shortcut, (None, False))[1]:     # the square of a value, summed, beside a product of it: a distance
                continue
            region = self.reach(branch, state)
            if region is not None and region.learned and not self._apart(shortcut, region):
                self._join(node, shortcut, branch, factor, region, state, "identity", other)
                return
        for shortcut, branch, _, other in (first, second):
            for base in self._bases(shortcut):
                weights = g.nodes[base.node].op in ops.SOFTMAXES            # of an attention, on values and on relative positions
                if weights or base in self._bases(branch) or not self._projects(shortcut, branch, base):
                    continue
                region, own = self.reach(branch, base), self.reach(shortcut, base)
                if region is not None and region.learned and own is not None and not self._shared(region, own, base):
                    self._join(node, shortcut, branch, 1.0, region, base, "projection", other)
                    return
        self._sum(node, a, b)

    def combine_virtual(self, node: "Node", base: int, alpha: float, beta: float = 1.0) -> None:
        """The same for an operation that multiplies and adds at once: its product bears the operation's own number."""
        g = self.graph
        n = node.id
        state, product, marks, gain = g.state[base], g.state[n], g.marks[n], g.gain[n]
        assert state is not None and product is not None
        others = tuple(i for i in node.ins if i != base)
        scaled = next((i for i in others if g.state[i] is product), None)       # the branch, where the product only scales it
        region = self.reach(n, state, others) if scaled is None else self.reach(scaled, state)
        if region is not None and region.learned:
            self._join(node, base, n if scaled is None else scaled, beta, region, state, "identity")
            own = (0, 1.0) if scaled is None else (g.marks[scaled], g.gain[scaled])
            self.found[-1].marks = (marks & ~own[0]) | (CONSTANT if alpha != 1.0 else 0)
            self.found[-1].factor = alpha if gain == own[1] else None
        elif scaled is not None and (turned := self.reach(base, product)) is not None and turned.learned:
            factor = alpha if gain == g.gain[scaled] else None      # the product is the shortcut: addcmul(F(x), scale, x)
            self._join(node, scaled, base, factor, turned, product, "identity", beta)
        elif product is state:
            g.carry(node, base, 0, None)
        else:
            g.fresh(node, "sum")
            g.terms[n] = (base,)

    def write(self, node: "Node", shortcut: int, branches: list[int], regions: list[Region], before: State) -> None:
        """A read over depth that has values of sublayers for the first time: they join the stream."""
        region = regions[0]
        if len(regions) > 1:
            region = Region(sorted({n for r in regions for n in r.nodes}), set().union(*[r.hits for r in regions]), True)
        after = self.graph.fresh(node, "join", before)
        self.graph.marks[node.id] = MIXED
        self._keep(Join(node.id, shortcut, branches[0] if len(branches) == 1 else node.id, region, before, after, "identity", 1.0))

    # the cases

    def _grows(self, node: "Node", a: int, b: int, fa: float | None, fb: float | None) -> bool:
        """One operand is kept for reads over depth, and the other was computed from a read that had it."""
        g = self.graph
        for shortcut, branch, factor, other in ((a, b, fa, fb), (b, a, fb, fa)) if g.written else ():
            own = g.state[shortcut]
            before = g.written.get(own) if own is not None else None
            region = self.reach(branch, before) if before is not None else None
            if own is not None and before is not None and region is not None and region.learned:
                self._join(node, shortcut, branch, factor, region, before, "identity", other)
                self.found[-1].gain = factor if g.gain[shortcut] == g.gain[g.held[own]] else None
                return True
        return False

    def _same(self, node: "Node", a: int, b: int, fa: float | None, fb: float | None) -> None:
        """Both operands carry one state."""
        g = self.graph
        parts = (g.marks[a] | g.marks[b]) & (PART | MOVED | GATED | MIXED)
        (newest, ka), (other, kb) = g.since[a], g.since[b]
        ga, gb = times(ka, fa), times(kb, fb)
        if parts or newest != other or ga is None or gb is None:        # what is no constant is not the same on both
            convex = g.marks[a] & GATED and g.marks[b] & GATED
            g.fresh(node, "mixed" if convex else "sum", g.state[a])
        elif abs(ga + gb) < 1e-9:
            g.fresh(node, "difference")
        elif ga == gb and abs(ga + gb - 1) > 1e-9:
            g.doubled.append((node.id, a, b))
            g.fresh(node, "self_add", g.state[a])
        else:
            g.carry(node, a)
            g.scale(node.id, ga + gb, newest)

    def _injected(self, node: "Node", a: int, b: int) -> bool:
        """`a` is added at this line turn after turn, and `b` comes of an earlier turn: a value put into a recurrence, not a shortcut."""
        g = self.graph
        now = g.state[b]
        earlier = [s for n in self.beside(node) if n < node.id and a in g.nodes[n].ins and (s := g.state[n]) is not None]
        return now is not None and any(s.depth < now.depth and now.has(s) for s in earlier)

    def beside(self, node: "Node") -> list[int]:
        """All adds at the source line of this one."""
        if not self._lines:
            for other in self.graph.nodes:
                if other.where is not None and other.op in ops.ADDS:
                    self._lines.setdefault(other.where, []).append(other.id)
        return self._lines.get(node.where, []) if node.where is not None else []

    def _double(self, node: "Node", a: int, b: int, fa: float | None, fb: float | None) -> bool:
        """`b` is a later state of the very stream that `a` carries: the identity path is there twice."""
        g = self.graph
        sa, sb = g.state[a], g.state[b]
        assert sa is not None and sb is not None
        if sb.root is sa.root and self._injected(node, a, b):
            self.long.append((node.id, sa, sb))
            g.carry(node, b)
            return True
        passed: list[Join] = []
        state: State | None = sb
        through = times(g.gain[b], fb)
        normed = False
        while state is not None and state is not sa and state.depth > sa.depth and (state.via == "join" or (passed and _behind_a_join(state, sa))):
            if state.via == "join":
                passed.append(self.by_state[state])
                through = times(through, passed[-1].gain)
            normed = normed or state.via != "join"
            state = state.prev
        if state is not sa or not passed:
            return False
        if normed:                                          # around the norms of post-norm sublayers, from the bottom of a block to its top
            self.long.append((node.id, sa, sb))
            g.carry(node, b)
            return True
        total = None if through is None else _plus(times(self._since(a, passed[-1].region), fa), through)
        if total is not None and abs(total) < 1e-9:
            g.fresh(node, "difference")
        elif len(passed) > (LONG if total is not None and (through is None or abs(through) >= 1) and len(self.beside(node)) > 1 else 1):
            self.long.append((node.id, sa, sb))
            g.carry(node, b)
        else:
            marks = g.marks[b]
            self._fold(node, a, b, passed, total)
            self.found[-1].marks = marks
            self.found[-1].factor = times(g.gain[b], fb)
        return True

    def _shards(self, node: "Node", a: int, b: int, fa: float | None, fb: float | None) -> bool:
        """Two joins of one state are summed: each brought the identity along."""
        g = self.graph
        ja, jb = self._last(a), self._last(b)
        if ja is None or jb is None or ja.before is not jb.before:
            return False
        if (g.marks[ja.shortcut] | g.marks[jb.shortcut]) & (MIXED | PART):      # lanes, summed at their end
            return False
        total = _plus(times(times(g.gain[a], fa), ja.gain), times(times(g.gain[b], fb), jb.gain))
        if total is None:
            return False
        self._fold(node, ja.shortcut, b, [ja, jb], total)
        return True

    def combine_shards(self, node: "Node", parts: list[int], factor: float) -> bool:
        """`_shards` for any number of summed joins of one state."""
        joins = [self._last(n) for n in parts]
        first = joins[0]
        if first is None or any(j is None or j.before is not first.before for j in joins):
            return False
        gains = [times(times(self.graph.gain[n], factor), j.gain) for n, j in zip(parts, joins, strict=True) if j is not None]
        if any(gain is None for gain in gains):
            return False
        self._fold(node, first.shortcut, parts[-1], [j for j in joins if j is not None], sum(gain for gain in gains if gain is not None))
        return True

    def _merge(self, node: "Node", sa: State, sb: State) -> bool:
        """Two streams that parted from one state, each with joins of its own, are summed: one stream again."""
        if sa.root is not sb.root:
            return False
        common: State | None = sa
        while common is not None and not sb.has(common):
            common = common.prev
        if common is None or not _parted(sa, common) or not _parted(sb, common):
            return False
        self.graph.fresh(node, "merged", common)
        return True

    def _last(self, n: int) -> Join | None:
        state = self.graph.state[n]
        return self.by_state.get(state) if state is not None else None

    def _fold(self, node: "Node", shortcut: int, branch: int, inner: list[Join], gain: float | None) -> None:
        """Tell several joins around one sublayer as one join with their total gain."""
        g = self.graph
        before = g.state[shortcut]
        assert before is not None
        for join in inner:
            self.found.remove(join)
        every = sorted({n for j in inner for n in j.region.nodes} | {j.node for j in inner})
        region = Region(every, set().union(*[j.region.hits for j in inner]), True)
        after = g.fresh(node, "join", before)
        flat = tuple(j for i in inner for j in (i.folded or (i,)))
        self._keep(Join(node.id, shortcut, branch, region, before, after, "identity", gain, tuple(sorted(flat, key=lambda j: j.node)), node.write))

    def _join(self, node: "Node", shortcut: int, branch: int, factor: float | None, region: Region, before: State, kind: str,
              on_branch: float | None = 1.0) -> None:
        g = self.graph
        gain = times(self._since(shortcut, region), factor) if kind == "identity" else 1.0
        if g.marks[shortcut] & MIXED:
            gain = 1.0
        after = g.fresh(node, "join", before)
        marks = GATED if on_branch is None else CONSTANT if on_branch != 1.0 else 0
        self._keep(Join(node.id, shortcut, branch, region, before, after, kind, gain, (), node.write, marks, on_branch))

    def _since(self, n: int, region: Region) -> float | None:
        """What multiplies the shortcut `n` since the branch parted from it: a factor that both carry is the stream's, not the shortcut's.

        One that is not a constant is told of the first site behind it, unless the stream only begins there: then it is the stem's.
        """
        g = self.graph
        state, gain = g.state[n], g.gain[n]
        assert state is not None
        read = next((h for h in sorted(region.hits, reverse=True) if g.state[h] is state), None)
        if read is None or gain == 1.0:
            return gain
        (newest, constant), (shared, factor) = g.since[n], g.since[read]
        if gain is None and (newest != shared or state.joined):
            return None
        return constant / factor if newest == shared and factor else gain

    def _keep(self, join: Join) -> None:
        self.found.append(join)
        self.by_state[join.after] = join

    def _sum(self, node: "Node", a: int, b: int) -> None:
        """Two branches, or two linear maps of one value, which are one sublayer."""
        g = self.graph
        common = next((s for s in self._bases(a) if s in self._bases(b)), None)
        gate = min(g.gate[a], g.gate[b])
        g.fresh(node, "sum")
        g.linear[node.id], g.gate[node.id] = common, gate
        if common is None:
            g.terms[node.id] = (a, b)

    def _apart(self, shortcut: int, region: Region) -> bool:
        """Whether shortcut and branch hold different entries of one value: two biases out of a table that a network made."""
        own = self._entry(shortcut)
        return own is not None and all((entry := self._entry(h)) is not None and entry[0] == own[0] and entry != own for h in region.hits)

    def _entry(self, n: int) -> tuple[int, tuple[Any, ...]] | None:
        """What a node is an entry of, and which: (source, axis and index)."""
        g = self.graph
        for _ in range(16):
            node = g.nodes[n]
            if node.op == "select":
                return node.ins[0], tuple(node.args[1:])
            if not node.ins or g.state[node.ins[0]] is not g.state[n]:
                return None
            n = node.ins[0]
        return None

    def _bases(self, n: int) -> list[State]:
        """The states that a node is a learned linear function of, nearest first."""
        found: list[State] = []
        base = self.graph.linear[n]
        while base is not None and len(found) < 8:
            found.append(base)
            base = self.graph.linear[base.node] if base.via in ("learned", "sum", "norm", "pool") else None
        return found

    def _projects(self, shortcut: int, branch: int, base: State) -> bool:
        """Whether a linear shortcut is a projection of the stream: a convolution, or a matrix that changes the width of the state it is a map of."""
        g = self.graph
        if g.nodes[shortcut].shape != g.nodes[branch].shape:
            return False
        n = shortcut
        for _ in range(16):                                 # back over norms and pools to the map itself
            state = g.state[n]
            assert state is not None
            made = g.nodes[state.node]
            signals = [i for i in made.ins if g.signal[i]]
            if not signals:
                return False
            if g.learned[made.id]:
                return made.op in ops.CONVOLUTIONS or made.shape[-1] != g.nodes[base.node].shape[-1]
            if state.via not in ("norm", "pool", "sum"):
                return False
            n = signals[0]
        return False

    def _shared(self, region: Region, own: Region, base: State) -> bool:
        """Whether the branch runs through the projection itself, or around whole blocks of the stream (a lateral connection)."""
        g = self.graph
        both = set(region.nodes).intersection(own.nodes)
        beyond = any((s := g.state[n]) is not None and not base.has(s) for n in region.hits)
        return beyond or any(g.learned[n] for n in both)

    # reachability

    def _goes_on(self, state: State, carried: State) -> bool:
        """Whether a state comes after one that `carried` continues, through joins and activations alone: the stream beyond it."""
        if state.via != "join":
            return False
        while state.via in ("join", "act", "self_add") and state.prev is not None:
            state = state.prev
            if carried.has(state):
                return True
        return False

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
            if v != start and state is not None and state.root is carried.root and (carried.has(state) or self._goes_on(state, carried)):
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


def _behind_a_join(state: State, since: State) -> bool:
    """Whether a norm stands on a sum, as a post-norm does, and not on the stream that a sublayer reads through it."""
    return state.via in NORMED and state.prev is not None and state.prev is not since and state.prev.via in ("join", *NORMED)


def _parted(state: State | None, since: State) -> bool:
    """Whether a state comes of an earlier one by joins, with activations and norms between and behind them."""
    joined = False
    while state is not None and state is not since:
        if state.via not in ("join", "act", *NORMED):
            return False
        joined, state = joined or state.via == "join", state.prev
    return joined and state is since


def times(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a * b


def _plus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b
