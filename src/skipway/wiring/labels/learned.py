"""Operations that multiply by a stored matrix or mix tokens, and what an attention is made of."""

from typing import TYPE_CHECKING

from skipway.wiring import lanes
from skipway.wiring import operations as ops
from skipway.wiring.labels import sums
from skipway.wiring.labels.nodes import numel, pair
from skipway.wiring.record import Node
from skipway.wiring.states import GATED, STORED, State

if TYPE_CHECKING:
    from skipway.wiring.graph import Graph


def matmul(g: "Graph", node: Node, signals: list[int]) -> None:
    ins = node.ins
    if node.op in ("addmm", "baddbmm", "addbmm", "addmv", "addr") and g.signal[ins[0]] and len(ins) == 3:
        base, a, b = ins
        inner = [i for i in (a, b) if g.signal[i]]
        if inner:
            matmul_of(g, pair(node, a, b), inner)
            beta, alpha = node.kwargs.get("beta", 1), node.kwargs.get("alpha", 1)
            g.joins.combine_virtual(node, base, float(alpha), float(beta))
        else:
            sums.shifted(g, node, base, 1.0)
        return
    if node.op in ("addmm", "baddbmm", "addbmm", "addmv"):
        ins = ins[1:] if len(ins) == 3 else ins
    matmul_of(g, pair(node, *ins[:2]) if len(ins) >= 2 else node, [i for i in ins if g.signal[i]])


def matmul_of(g: "Graph", node: Node, signals: list[int]) -> None:
    n = node.id
    if (g.lane or g.stacked) and lanes.contract(g, node):
        return
    if not signals:
        g.fresh(node, "product")
        return
    if len(signals) >= 2:
        mixes = attends(g, node)
        g.fresh(node, "attention" if mixes else "product")
        given = any((s := g.state[i]) is not None and g.nodes[s.node].op == "input" for i in signals)
        g.learned[n] = mixes or not given               # an adjacency that came in as an input gathers, it is not learned
        return
    source = signals[0]
    if not any(g.table[i] & STORED for i in node.ins if i != source):
        g.fresh(node, "product")
        return
    g.fresh(node, "learned")
    g.learned[n] = 1
    g.linear[n] = base(g, source)


def base(g: "Graph", source: int) -> State | None:
    """What a learned map of `source` is linear in: its state, unless a gate stands between."""
    return State(source, "gated") if g.marks[source] & GATED else g.state[source]


def attends(g: "Graph", node: Node) -> bool:
    """softmax(query key) value: remember the three where one operand is such a softmax, or token weights without one."""
    for weights, value in (node.ins[:2], node.ins[1::-1]):
        scores, softmax = score_product(g, weights)
        if scores and softmax:
            g.attention[node.id] = (*scores, value)
            return True
        if scores:
            g.weighted[node.id] = (*scores, value)
    return False


def score_product(g: "Graph", n: int) -> tuple[tuple[int, ...], bool]:
    """The operands of the product that `n` was made of by masks, drop-out, activations and casts; whether by a softmax."""
    softmax = False
    passed: list[int] = []
    for _ in range(120):
        node = g.nodes[n]
        signals = [i for i in node.ins if g.signal[i]]
        if node.op in ops.SOFTMAXES or node.op == "exp":
            softmax = True
        elif node.op in ops.MATMULS and len(signals) >= 2:
            if softmax:
                g.scores.update(passed)
            return tuple(signals[:2]), softmax
        elif g.learned[n]:
            break
        passed.append(n)
        if not signals:
            break
        n = max(signals, key=lambda i: numel(g.nodes[i])) if len(signals) > 1 else signals[0]
    return (), softmax


def convolution(g: "Graph", node: Node, signals: list[int]) -> None:
    source = signals[0]
    weight = node.ins[1] if len(node.ins) > 1 else source
    stored = bool(g.table[weight] & STORED) or g.signal[weight]
    if not stored:
        g.fresh(node, "pool", g.state[source])
        return
    g.fresh(node, "learned")
    g.learned[node.id] = 1
    g.linear[node.id] = base(g, source)


def attention(g: "Graph", node: Node, signals: list[int]) -> None:
    if node.out:
        g.fresh(node, "statistic")
        return
    g.fresh(node, "attention")
    g.learned[node.id] = 1
    g.attention[node.id] = node.ins[:3]


def learned(g: "Graph", node: Node, signals: list[int]) -> None:
    g.fresh(node, "learned")
    g.learned[node.id] = 1


def sampled(g: "Graph", node: Node, signals: list[int]) -> None:
    g.fresh(node, node.op)
    places = g.state[node.ins[1]]
    if places is not None and places.via == "join":
        g.grids.add(places.node)


def other(g: "Graph", node: Node, signals: list[int]) -> None:
    g.fresh(node, node.op)
