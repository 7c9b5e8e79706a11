"""Sums, differences and blends. Adding a table only shifts a value; what the sum of two signals is, `joins` decides."""

from typing import TYPE_CHECKING

from skipway.wiring.labels import keeps
from skipway.wiring.labels.nodes import pair
from skipway.wiring.record import Node
from skipway.wiring.states import GATED, SHIFTED

if TYPE_CHECKING:
    from skipway.wiring.graph import Graph


def add(g: "Graph", node: Node, signals: list[int]) -> None:
    if node.op == "add" and len(node.ins) == 1:
        shifted(g, node, signals[0], 1.0)
        return
    sign = -1.0 if node.op == "sub" else 1.0
    alpha = node.kwargs.get("alpha", 1) if node.op != "_foreach" else 1
    alpha = float(alpha) if isinstance(alpha, (int, float)) else 1.0
    if len(node.ins) == 1:
        shifted(g, node, signals[0], -1.0 if node.op == "rsub" else 1.0)
    elif len(signals) == 1:
        second = signals[0] == node.ins[1]
        shifted(g, node, signals[0], sign * alpha if second else 1.0)
    elif node.op == "sub" and (centres(g, node) or detrends(g, node)):
        return
    else:
        factors = (-1.0, 1.0) if node.op == "rsub" else (1.0, sign * alpha)
        g.joins.combine(node, node.ins[0], node.ins[1], *factors)


def shifted(g: "Graph", node: Node, source: int, factor: float) -> None:
    g.carry(node, source, SHIFTED, factor)


def centres(g: "Graph", node: Node) -> bool:
    a, b = node.ins
    found = g.statistic.get(b)
    state = g.state[a]
    if found is None or found[1] or found[0] is not state or state is None:
        return False
    made = g.fresh(node, "centred", state)
    g.centred[made] = state
    return True


def detrends(g: "Graph", node: Node) -> bool:
    """A value minus a moving average of itself goes on as itg."""
    a, b = node.ins
    pooled = g.state[b]
    if pooled is None or pooled.via != "pool" or pooled.prev is not g.state[a] or node.shape != g.nodes[b].shape:
        return False
    g.carry(node, a)
    return True


def neg(g: "Graph", node: Node, signals: list[int]) -> None:
    g.carry(node, signals[0], 0, -1.0)


def addc(g: "Graph", node: Node, signals: list[int]) -> None:
    """addcmul and addcdiv: base + value * a * b, taken apart."""
    base, a, b = node.ins
    value = node.kwargs.get("value", 1.0)
    inner = [i for i in (a, b) if g.signal[i]]
    if not g.signal[base]:
        (keeps.mul if node.op == "addcmul" else keeps.div)(g, pair(node, a, b), inner)
    elif not inner:
        shifted(g, node, base, 1.0)
    else:
        (keeps.mul if node.op == "addcmul" else keeps.div)(g, pair(node, a, b), inner)
        g.joins.combine_virtual(node, base, float(value) if isinstance(value, (int, float)) else 1.0)


def lerp(g: "Graph", node: Node, signals: list[int]) -> None:
    a, b = node.ins[0], node.ins[1]
    weight = node.args[2] if len(node.args) > 2 else node.kwargs.get("weight")
    factor = float(weight) if isinstance(weight, (int, float)) else None
    if g.signal[a] and g.signal[b]:
        g.joins.combine(node, a, b, None if factor is None else 1 - factor, factor)      # None: the weight is a tensor
    else:
        g.carry(node, signals[0], GATED, None)
