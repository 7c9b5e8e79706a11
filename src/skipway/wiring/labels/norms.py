"""Norms in every spelling, and the statistics and activations that they are made of."""

from typing import TYPE_CHECKING

from skipway.wiring import lanes
from skipway.wiring import operations as ops
from skipway.wiring.labels.nodes import scalar
from skipway.wiring.record import Node
from skipway.wiring.states import STORED, Norm

if TYPE_CHECKING:
    from skipway.wiring.graph import Graph


def normed(g: "Graph", node: Node, source: int, name: str) -> None:
    state = g.fresh(node, "norm", g.state[source])
    state.norm = Norm(name, node.call, source)
    g.linear[node.id] = g.linear[source] or g.state[source]


def norm_by(g: "Graph", node: Node, value: int, by: int) -> bool:
    """A value times or over a statistic of itself that holds a square is a norm: RMSNorm, LayerNorm where it was centred."""
    found = g.statistic.get(by)
    state = g.state[value]
    if found is None or not found[1] or state is None:
        return False
    base = found[0]
    raw = g.centred.get(state)
    if g.centred.get(base, base) is not (raw or state):
        return False
    source = raw.node if raw is not None else _before_weight(g, node, value)
    normed(g, node, source if raw is None else value, "LayerNorm" if raw is not None else "RMSNorm")
    if raw is not None:
        made = g.state[node.id]
        assert made is not None and made.norm is not None
        made.norm.source = source
    return True


def _before_weight(g: "Graph", node: Node, value: int) -> int:
    """The value itself where the norm's own weight was multiplied in before the statistic: `w * x * rsqrt(...)`."""
    made = g.nodes[value]
    signals = [i for i in made.ins if g.signal[i]]
    own = made.op == "mul" and len(made.ins) == 2 and len(signals) == 1 and made.call == node.call
    return signals[0] if own and any(g.table[i] & STORED for i in made.ins if i != signals[0]) else value


def norm(g: "Graph", node: Node, signals: list[int]) -> None:
    if node.out == 0:
        name = ops.NORMS[node.op]
        module = g.record.calls[node.call].module
        if "instance" in type(module).__name__.lower():
            name = "GroupNorm"
        normed(g, node, signals[0], name)
    else:
        g.fresh(node, "statistic")


def statistic_of(g: "Graph", node: Node, source: int) -> None:
    if source in g.statistic:
        g.statistic[node.id] = g.statistic[source]


def act(g: "Graph", node: Node, signals: list[int]) -> None:
    source = signals[0]
    op = node.op
    state = g.state[source]
    g.fresh(node, "act", state)
    g.gate[node.id] = 0 if op not in ops.GATES else 1 if op in ops.SIGNED else 2
    statistic_of(g, node, source)
    if op == "square" or (op == "pow" and scalar(node) == 2) or op == "abs":
        g.square[node.id] = state  # type: ignore[assignment]
    elif source in g.square and op in ("pow", "sqrt"):
        g.square[node.id] = g.square[source]


def reduce(g: "Graph", node: Node, signals: list[int]) -> None:
    source = signals[0]
    if source in g.lane and lanes.reduce(g, node, source):
        return
    state = g.state[source]
    stack = g.stacked.get(state.node, ()) if state is not None else ()
    if node.op in ("sum", "mean") and stack and node.shape == g.nodes[stack[0]].shape:
        parts = [i for i in stack if g.signal[i]]
        factor = 1.0 if node.op == "sum" else 1.0 / len(stack)
        if len(parts) == 2:
            g.joins.combine(node, parts[0], parts[1], factor, factor)
        elif not g.joins.combine_shards(node, parts, factor):
            g.fresh(node, "sum")
            g.terms[node.id] = tuple(parts)
        return
    if node.op in ("sum", "mean") and node.shape == g.nodes[source].shape:
        g.carry(node, source)
        return
    if node.out == 0 and node.op in ops.POOLS:
        g.fresh(node, "pool", g.state[source])
        g.linear[node.id] = g.linear[source]
        g.learned[node.id] = node.op.startswith("avg_pool") and node.shape == g.nodes[source].shape
    else:
        g.fresh(node, "statistic")
    if node.op in ops.STATISTICS:
        base = g.square.get(source)
        state = base or g.state[source]
        assert state is not None
        g.statistic[node.id] = (state, base is not None or (node.op in ops.SQUARED and node.out == 0))


def norm_vector(g: "Graph", node: Node, signals: list[int]) -> None:
    g.fresh(node, "statistic")
    source = signals[0]
    state = g.state[source]
    assert state is not None
    g.statistic[node.id] = (g.square.get(source) or state, True)
