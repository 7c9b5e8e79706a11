"""Operations through which a value goes on as itself: views, casts, cuts, concatenations, and scales by constants, weights and gates."""

from typing import TYPE_CHECKING

from skipway.wiring import fractions, lanes
from skipway.wiring import operations as ops
from skipway.wiring.labels import norms
from skipway.wiring.labels.nodes import narrower, numel, oldest, scalar
from skipway.wiring.record import Node
from skipway.wiring.states import CONSTANT, DROPPED, GATED, INVERSE, MIXED, MOVED, NARROWED, NOISE, PART, RANDOM, ROOT, SCALAR, STORED, VECTOR

if TYPE_CHECKING:
    from skipway.wiring.graph import Graph


def identity(g: "Graph", node: Node, signals: list[int]) -> None:
    op, source = node.op, signals[0]
    if op in ops.SPLITS and numel(node) < numel(g.nodes[source]):
        g.fresh(node, "part", g.state[source])
        g.linear[node.id], g.gate[node.id] = g.linear[source], g.gate[source]
        return
    mark = 0
    whole = numel(node) == numel(g.nodes[source]) and (op in ops.SPLITS or g.marks[source] & MIXED)
    if op in ops.PARTS and node.shape != g.nodes[source].shape and not whole:
        mark = PART
    if op in ops.MOVES:
        mark |= MOVED
    if op in ops.DROPS:
        mark |= DROPPED
    g.carry(node, source, mark)
    if op in ("_to_copy", "to", "copy") and narrower(node.dtype, g.nodes[source].dtype):
        state = g.state[source]
        if state is None or state.norm is None or state.norm.call != node.call:     # a norm may compute in a wider type
            g.marks[node.id] |= NARROWED
    if op in ("expand", "repeat"):
        lanes.born_by_expand(g, node, source)


def patch(g: "Graph", node: Node, signals: list[int]) -> None:
    old, new = node.ins
    if not g.signal[new]:
        g.carry(node, old)
    elif not g.signal[old]:
        g.carry(node, new, g.marks[new] & ~PART)
    else:
        a, b = g.state[old], g.state[new]
        assert a is not None and b is not None
        g.carry(node, new if b.has(a) else old)
        if b.has(a):
            g.marks[node.id] &= ~PART


def cat(g: "Graph", node: Node, signals: list[int]) -> None:
    states = {g.state[i] for i in signals}
    biggest = max(signals, key=lambda i: numel(g.nodes[i]))
    if len(states) == 1 and node.op == "cat":
        g.carry(node, biggest)
        g.marks[node.id] = g.marks[node.id] & ~PART | (MOVED if len(signals) > 1 else 0)
        fractions.gathered(g, node, signals)
        return
    if node.op == "stack":
        stack(g, node, signals)
        return
    mostly = numel(g.nodes[biggest]) * 2 > numel(node)
    g.fresh(node, "cat", g.state[biggest] if mostly else None)


def stack(g: "Graph", node: Node, signals: list[int]) -> None:
    if len({g.state[i] for i in signals}) == 1:
        g.carry(node, signals[0])
        fractions.gathered(g, node, signals)
    else:
        states = [s for i in signals if (s := g.state[i])]
        lanes_end = next((s for s in states if s.root in g.mixed), None)
        g.fresh(node, "stack", oldest(states) or lanes_end)
    g.stacked[node.id] = tuple(node.ins)
    if any(all(i == j or g.computed_from(j, i) for j in signals) for i in signals):
        lanes.born_by_stack(g, node)


def scatter(g: "Graph", node: Node, signals: list[int]) -> None:
    base, source = node.ins[0], node.ins[-1]
    a, b = g.state[base], g.state[source]
    if a is not None and b is not None and b is not a and b.has(a) and not _accumulates(node):
        g.carry(node, source)                           # the picked part was normed, and put back in its place
    elif g.signal[base] and g.signal[source] and _accumulates(node):
        g.joins.combine(node, base, source, 1.0, 1.0)
    elif g.signal[base]:
        g.carry(node, base)
    else:
        g.fresh(node, "sum")
        g.terms[node.id] = (source,)


def _accumulates(node: Node) -> bool:
    """Whether a scatter adds to what is there; others overwrite it."""
    flag = node.args[3] if len(node.args) > 3 else node.kwargs.get("accumulate", False)
    return node.op in ("index_add", "scatter_add") or (node.op in ("index_put", "_unsafe_index_put") and bool(flag))


def mul(g: "Graph", node: Node, signals: list[int]) -> None:
    if len(signals) == 1 and len(node.ins) == 1:
        g.carry(node, signals[0], CONSTANT, scalar(node))
        return
    if len(signals) == 1:
        source = signals[0]
        other = node.ins[1] if node.ins[0] == source else node.ins[0]
        scaled(g, node, source, other)
        return
    a, b = signals[0], signals[1]
    if norms.norm_by(g, node, a, b) or norms.norm_by(g, node, b, a):
        return
    if a == b:
        g.fresh(node, "act", g.state[a])
        g.square[node.id] = g.square.get(a) or g.state[a]  # type: ignore[assignment]
        return
    for source, other in ((a, b), (b, a)):
        if g.gate[source] and not (g.gate[other] > g.gate[source] and _blends(g, other)):
            continue
        small = numel(g.nodes[other]) * 2 <= numel(g.nodes[source])
        if g.gate[other] or other in g.statistic or small:
            g.carry(node, source, GATED, None)
            g.linear[node.id] = None
            return
    if g.gate[a] and g.gate[b]:
        g.gate[node.id] = min(g.gate[a], g.gate[b])
    g.fresh(node, "product")
    g.products.append((node.id, a, b))


def _blends(g: "Graph", gate: int) -> bool:
    """Whether a gate has a complement, 1 - gate, or is one: together they blend two values, which may be bounded themselves."""
    while g.nodes[gate].op in ops.IDENTITY and g.nodes[gate].ins and gate not in g.blends:
        gate = g.nodes[gate].ins[0]
    return gate in g.blends or g.nodes[gate].op == "rsub"


def scaled(g: "Graph", node: Node, source: int, other: int) -> None:
    """A signal times a stored or constant tensor."""
    table, size = g.table[other], numel(g.nodes[other])
    if table & NOISE:
        g.carry(node, source, RANDOM | DROPPED)
    elif table & INVERSE and table & STORED:
        norms.normed(g, node, source, "BatchNorm")
    elif table & STORED:
        state = g.state[source]
        own = state is not None and state.norm is not None and state.norm.call == node.call and state not in g.affine
        if own and state is not None and size > 1:          # the norm's own weight
            g.affine.add(state)
            g.carry(node, source)
        else:
            g.carry(node, source, SCALAR if size == 1 else VECTOR, None)
    else:
        value = g.constant(other)
        g.carry(node, source, CONSTANT if size == 1 else GATED, value)


def div(g: "Graph", node: Node, signals: list[int]) -> None:
    if len(node.ins) == 1:
        value = scalar(node)
        g.carry(node, signals[0], CONSTANT, 1 / value if value else None)
        return
    a, b = node.ins[0], node.ins[1]
    if g.signal[a] and not g.signal[b]:
        if g.table[b] & NOISE:
            g.carry(node, a, RANDOM | DROPPED)
        elif g.table[b] & ROOT and g.table[b] & STORED:             # over the root of a stored variance
            norms.normed(g, node, a, "BatchNorm")
        else:
            value = g.constant(b)
            g.carry(node, a, CONSTANT if value else SCALAR if numel(g.nodes[b]) == 1 else VECTOR, 1 / value if value else None)
    elif g.signal[a] and norms.norm_by(g, node, a, b):
        return
    elif g.signal[a] and (g.gate[a] or b in g.statistic):
        g.carry(node, a, GATED, None)
    elif not g.signal[a]:
        g.fresh(node, "act", g.state[b])
        norms.statistic_of(g, node, b)
    else:
        g.fresh(node, "product")


def where(g: "Graph", node: Node, signals: list[int]) -> None:
    states = {g.state[i] for i in signals}
    if len(states) == 1:
        g.carry(node, signals[0])
    else:
        g.fresh(node, "where")
