"""Reads over depth: a softmax-weighted sum of what the stem and earlier sublayers made, each of it kept beside the others.

There the stream is the list of those values. A value that a read has for the first time is written there, and joins; a read of values
that were all written before is the stream at the newest of them. What grows a kept value by a plain add is a join on the same stream.
"""

import itertools
import math
from typing import TYPE_CHECKING

from skipway.wiring import operations as ops
from skipway.wiring.states import MIXED

if TYPE_CHECKING:
    from skipway.wiring.graph import Graph
    from skipway.wiring.record import Node

Reads = dict[int, tuple[int, ...]]          # node that holds a read, or a part of its sum -> the nodes it sums, oldest first

_FAR = 24           # operations between a stack and its use


def find(g: "Graph") -> Reads:
    """The reads of a labelled graph, where together they have three values or more that are no states of one stream already."""
    finder = _Finder(g)
    found: Reads = {}
    for node in g.nodes:
        sources = finder.sources(node) if g.signal[node.id] else ()
        if len(sources) > 1:
            found[node.id] = tuple(sorted(sources))
    groups: dict[int, list[tuple[int, ...]]] = {}
    for n, sources in found.items():
        if _apart(g, sources) and not any(set(sources) < set(found.get(u, ())) for u in g.users[n]):
            groups.setdefault(sources[0], []).append(sources)
    stems = {first for first, reads in groups.items() if _one(g, reads)}
    return {n: sources for n, sources in found.items() if sources[0] in stems}


def _one(g: "Graph", reads: list[tuple[int, ...]]) -> bool:
    """Whether reads are of one list that grows: no value is dropped from one to the next, unless it grew itself."""
    values = sorted({n for sources in reads for n in sources})
    return len(values) > 2 and _in_turn(g, values) and all(_grew(g, n, set(b)) for a, b in itertools.pairwise(reads) for n in set(a) - set(b))


def _grew(g: "Graph", n: int, later: set[int]) -> bool:
    own = g.state[n]
    return own is not None and any((s := g.state[i]) is not None and s is not own and s.has(own) for i in later)


def _apart(g: "Graph", sources: tuple[int, ...]) -> bool:
    """Whether the values have no stream of their own: later ones do not continue the first."""
    states = [s for n in sources if (s := g.state[n]) is not None]
    return len(states) == len(sources) and any(s.root is not states[0].root for s in states)


def _in_turn(g: "Graph", sources: list[int]) -> bool:
    """Whether each value is computed from the one before through something learned."""
    for a, b in itertools.pairwise(sources):
        state = g.state[a]
        region = g.joins.reach(b, state) if state is not None else None
        if region is None or not region.learned:
            return False
    return True


def _weights(g: "Graph") -> dict[int, int]:
    """Nodes that hold entries of a softmax over signals -> that softmax. The scale of a norm may be worked into them."""
    found: dict[int, int] = {}
    for node in g.nodes:
        if node.op in ops.SOFTMAXES:
            if g.signal[node.id]:
                found[node.id] = node.id
        elif found and node.ins and (node.op == "mul" or node.op in ops.IDENTITY or node.op in ops.PARTS):
            softmax = next((found[i] for i in (node.ins if node.op == "mul" else node.ins[:1]) if i in found), None)
            if softmax is not None and math.prod(node.shape) <= math.prod(g.nodes[softmax].shape):
                found[node.id] = softmax
    return found


class _Finder:
    """Looks for reads in the spellings of a sum: term by term, over the axis of a stack, as a product, as an attention."""

    def __init__(self, g: "Graph") -> None:
        self.g = g
        self.weights = _weights(g)
        self.terms: dict[int, tuple[int, tuple[int, ...]]] = {}         # part of a sum -> softmax, values
        self.stacks: dict[int, tuple[int, ...]] = {}

    def sources(self, node: "Node") -> tuple[int, ...]:
        """The values that a node sums by weights of one softmax; () where it does not."""
        ins = node.ins
        if node.op in ops.ATTENTIONS and not node.out and len(ins) > 2:
            keys, values = self._stack(ins[1]), self._stack(ins[2])
            return values if keys == values and values and self.g.nodes[ins[2]].shape[-2] == len(values) else ()
        if not self.weights:
            return ()
        if node.op in ("mul", "add", "addcmul"):
            found = self._term(node)
            if found is None:
                return ()
            self.terms[node.id] = found
            return found[1] if len(set(found[1])) == len(found[1]) else ()
        if node.op in ops.MATMULS and len(ins) == 2:
            return self._product(ins[0], ins[1], -2) or self._product(ins[1], ins[0], -1)
        if node.op == "sum" and self.g.nodes[ins[0]].op == "mul" and len(self.g.nodes[ins[0]].ins) == 2:
            return self._summed(node, self.g.nodes[ins[0]])
        return ()

    def _term(self, node: "Node") -> tuple[int, tuple[int, ...]] | None:
        ins = node.ins
        if node.op == "add" and len(ins) == 1:
            return self.terms.get(ins[0])
        if node.op == "add" and len(ins) == 2:
            a, b = self.terms.get(ins[0]), self.terms.get(ins[1])
            return (a[0], a[1] + b[1]) if a is not None and b is not None and a[0] == b[0] else None
        before = self.terms.get(ins[0]) if node.op == "addcmul" else None
        if (node.op == "addcmul" and before is None) or len(ins) < 2:
            return None
        for value, weight in (ins[-2:], ins[:-3:-1]):
            softmax = self.weights.get(weight) if math.prod(self.g.nodes[weight].shape) < math.prod(self.g.nodes[value].shape) else None
            if softmax is not None and self.g.signal[value] and (before is None or before[0] == softmax):
                return softmax, (*(before[1] if before is not None else ()), self._value(value))
        return None

    def _product(self, weights: int, stack: int, axis: int) -> tuple[int, ...]:
        found = self._stack(stack)
        return found if found and self.g.nodes[stack].shape[axis] == len(found) and weights in self.weights else ()

    def _summed(self, node: "Node", product: "Node") -> tuple[int, ...]:
        for stack, weights in (product.ins, product.ins[::-1]):
            found = self._stack(stack)
            if found and math.prod(node.shape) * len(found) == math.prod(product.shape) and weights in self.weights:
                return found
        return ()

    def _value(self, n: int) -> int:
        """The value itself, before casts, views and the norm through which it may be read: one that alone uses it is its sublayer's own."""
        g = self.g
        for _ in range(_FAR):
            node, state = g.nodes[n], g.state[n]
            if state is not None and state.node == n and state.norm is not None and self._shared(state.norm.source):
                n = state.norm.source
            elif node.op in ops.IDENTITY and node.ins and math.prod(g.nodes[node.ins[0]].shape) == math.prod(node.shape):
                n = node.ins[0]
            else:
                break
        return n

    def _shared(self, n: int) -> bool:
        """Whether several operations use a node; the outputs of one operation have one list of arguments."""
        return len({id(self.g.nodes[u].args) for u in self.g.users[n]}) > 1

    def _stack(self, n: int) -> tuple[int, ...]:
        """The values that were stacked to what a node is a view or a norm of."""
        n = self._value(n)
        if n not in self.stacks:
            self.stacks[n] = self._stacked(self.g.nodes[n])
        return self.stacks[n]

    def _stacked(self, node: "Node") -> tuple[int, ...]:
        g = self.g
        ins = tuple(i for i in node.ins if math.prod(g.nodes[i].shape))
        if node.op not in ("stack", "cat") or not ins or not all(g.signal[i] for i in ins):
            return ()
        if node.op == "stack":
            return tuple(self._value(i) for i in ins)
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        found: tuple[int, ...] = ()
        for i in ins:
            inner = (self._value(i),) if g.nodes[i].shape[dim] == 1 and not self._stack(i) else self._stack(i)
            if len(inner) != g.nodes[i].shape[dim]:
                return ()
            found += inner
        return found


def label(g: "Graph", node: "Node", sources: tuple[int, ...]) -> None:
    """A read in the second pass: the newest state of its stream, or the join that writes what it has for the first time."""
    n, first = node.id, g.state[sources[0]]
    assert first is not None
    first = g.written.get(first, first)
    known = {i: g.written.get(s, s) for i in sources if (s := g.state[i]) is not None and (s in g.written or s.root is first.root)}
    newest = max(known.values(), key=lambda s: s.depth)
    fresh = [i for i in sources if i not in known]
    regions = [r for i in fresh if (r := g.joins.reach(i, newest)) is not None and r.learned]
    if not fresh or len(regions) < len(fresh):
        g.state[n], g.marks[n] = newest, MIXED
        return
    summed = [i for i in node.ins if g.state[i] is newest and g.nodes[i].shape == node.shape]
    shortcut = summed[0] if summed else max(known, key=lambda i: (known[i].depth, i))
    g.joins.write(node, shortcut, fresh, regions, newest)
    for i in fresh:
        own = g.state[i]
        assert own is not None
        g.written[own], g.held[own] = g.joins.found[-1].after, i


def only_read(g: "Graph", n: int) -> bool:
    """Whether a node is read over depth, or makes the weights of such a read, and goes nowhere else."""
    seen, stack = {n}, [n] if g.reads else []
    while stack:
        v = stack.pop()
        state = g.state[v]
        if v in g.record.outputs or (v != n and state is not None and state.node == v and state.via == "join"):
            return False
        for u in g.users[v]:
            weighted = bool(g.users[u]) and all(w in g.reads for w in g.users[u])
            if u not in seen and u not in g.reads and not weighted:
                seen.add(u)
                stack.append(u)
    return bool(g.reads)
