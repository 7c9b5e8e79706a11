"""Streams of several lanes: where the lane axis is born, how it moves, and what mixes it.

A lane axis is kept as (elements inside one lane, number of lanes) in row-major order, so that views need no bookkeeping.
"""

import math
from typing import TYPE_CHECKING

from skipway.wiring import operations as ops
from skipway.wiring.states import CONSTANT, GATED, MIXED, SCALAR, VECTOR

if TYPE_CHECKING:
    from skipway.wiring.graph import Graph
    from skipway.wiring.record import Node

MOST = 16           # a wider new axis is time or batch, not lanes
_VIEWS = frozenset([
    "view", "_unsafe_view", "reshape", "_reshape_alias", "unsqueeze", "squeeze", "alias", "detach", "clone", "contiguous", "_to_copy", "copy",
    "reread", "patch"])


def born_by_expand(g: "Graph", node: "Node", source: int) -> None:
    """`x[:, None].expand(-1, n, ...)` and `repeat`: n equal copies along a new axis."""
    old, new = g.nodes[source].shape, node.shape
    old = (1,) * (len(new) - len(old)) + old
    if node.op == "repeat" and len(old) == len(new) and source not in g.lane:
        wider = [d for d in range(len(new)) if new[d] != old[d]]
        if len(wider) == 1 and old[wider[0]] > 1 and 2 <= new[wider[0]] // old[wider[0]] <= MOST:
            g.lane[node.id] = (old[wider[0]] * math.prod(new[wider[0] + 1:]), new[wider[0]] // old[wider[0]])
            return
    grown = [d for d, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    if len(grown) == 1 and old[grown[0]] == 1 and 2 <= new[grown[0]] <= MOST and source not in g.lane and math.prod(new[grown[0] + 1:]) > 1:
        g.lane[node.id] = (math.prod(new[grown[0] + 1:]), new[grown[0]])


def born_by_stack(g: "Graph", node: "Node") -> None:
    """n values stacked along a new axis."""
    n = len(node.ins)
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    if 2 <= n <= MOST and isinstance(dim, int):
        dim %= len(node.shape)
        g.lane[node.id] = (math.prod(node.shape[dim + 1:]), n)


def follow(g: "Graph", node: "Node", signals: list[int]) -> None:
    """Carry the lane axis through an operation that keeps it."""
    n, lane = node.id, g.lane
    if n in lane:
        return
    state = g.state[n]
    join = g.joins.by_state.get(state) if state is not None else None
    if join is not None and join.node == n:
        signals = [join.shortcut]
    for source in signals:
        if source in lane:
            break
    else:
        return
    if state is not g.state[source] and (state is None or state.via not in ("join", "norm", "centred", "stack", "sum", "mixed")):
        return                                          # lanes travel with a state
    shape, (inner, count) = g.nodes[source].shape, lane[source]
    place = _axis(shape, inner)
    if place is None:
        return
    dim, within = place
    op = node.op
    if op in _VIEWS and math.prod(shape) == math.prod(node.shape):
        lane[n] = (inner, count)
        return
    if op in ("permute", "transpose", "t", "movedim"):
        to = _moved(node, dim, len(shape))
    elif op in ("slice", "split", "split_with_sizes", "chunk", "narrow"):
        to = dim if node.shape[dim] == shape[dim] else None
    elif op in ops.MATMULS:
        to = dim if len(node.shape) == len(shape) and dim < len(shape) - 1 else None
    elif op in ("select", "unbind", "cat", "stack", "index", "embedding"):
        to = None
    elif len(node.shape) >= len(shape):
        to = dim + len(node.shape) - len(shape)
        to = to if node.shape[to] == shape[dim] else None
    else:
        to = None
    if to is not None:
        lane[n] = (math.prod(node.shape[to + 1:]) * within, count)


def contract(g: "Graph", node: "Node") -> bool:
    """A matrix product over the lane axis mixes lanes (or reads them): the stream goes on."""
    a, b = node.ins
    for x, other, axis in ((b, a, -2), (a, b, -1)):
        if x not in g.lane:
            stack = None if g.signal[other] else _stacked(g, x)
            whole = stack is not None and math.prod(node.shape) == math.prod(g.nodes[g.stacked[stack][0]].shape)
            if whole and _collapse(g, node, x, g.constant(other)):
                return True
            continue
        shape, (inner, count) = g.nodes[x].shape, g.lane[x]
        place = _axis(shape, inner)
        if place is None or place != (len(shape) + axis if len(shape) > 1 else 0, 1) or shape[place[0]] != count:
            continue
        if _collapse(g, node, x, g.constant(other) if not g.signal[other] else None):
            return True
        _mixed(g, node, x, count)
        out = node.shape
        rows = out[axis] if len(out) > 1 else 1
        if rows > 1:
            g.lane[node.id] = (out[-1] if axis == -2 else 1, rows)
        return True
    return False


def reduce(g: "Graph", node: "Node", source: int) -> bool:
    """A sum or mean over the lane axis reads the lanes, or mixes them where they were multiplied by a matrix before."""
    shape, (inner, count) = g.nodes[source].shape, g.lane[source]
    place = _axis(shape, inner)
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    dims = [dims] if isinstance(dims, int) else dims
    if node.op not in ("sum", "mean") or not dims or place is None or [d % len(shape) for d in dims] != [place[0]] or place[1] != 1:
        return False
    if _collapse(g, node, source, 1.0 if node.op == "sum" else 1.0 / count):
        return True
    weighted = g.marks[source] & (SCALAR | VECTOR | GATED | CONSTANT)
    if weighted:
        _mixed(g, node, source, count)
        born = _outer_axis(g, source, count)
        if born is not None and born != place[0]:
            kept = born - (1 if born > place[0] and len(node.shape) < len(shape) else 0)
            g.lane[node.id] = (math.prod(node.shape[kept + 1:]), count)
    else:
        g.carry(node, source)
        g.scale(node.id, 1.0)
    return True


def _outer_axis(g: "Graph", n: int, count: int) -> int | None:
    """The axis along which a matrix of coefficients spread the lanes by broadcasting: the lanes of the result."""
    node = g.nodes[n]
    while node.op != "mul" and node.op in ops.IDENTITY and node.ins:
        node = g.nodes[node.ins[0]]
    inside = [i for i in node.ins if i in g.lane]
    if node.op != "mul" or not inside:
        return None
    before = (1,) * (len(node.shape) - len(g.nodes[inside[0]].shape)) + g.nodes[inside[0]].shape
    grown = [d for d, (a, b) in enumerate(zip(before, node.shape, strict=True)) if a == 1 and b == count]
    return grown[0] if len(grown) == 1 else None


def _mixed(g: "Graph", node: "Node", x: int, count: int) -> None:
    g.carry(node, x, MIXED)
    g.scale(node.id, 1.0)
    g.gate[node.id] = 0
    state = g.state[x]
    assert state is not None
    g.mixed[state.root] = max(count, g.mixed.get(state.root, 1))


def _collapse(g: "Graph", node: "Node", x: int, factor: float | None) -> bool:
    """A sum over an axis along which different values were stacked is an add of those values."""
    stack = _stacked(g, x)
    if stack is None or g.marks[x] & MIXED:
        return False
    parts = [i for i in g.stacked[stack] if g.signal[i]]
    if len(parts) != 2 or factor is None:
        return False
    g.joins.combine(node, parts[0], parts[1], factor, factor)
    return True


def _stacked(g: "Graph", n: int) -> int | None:
    """The node that stacked what `n` is a view of, if one did."""
    for _ in range(12):
        if n in g.stacked:
            return n
        node = g.nodes[n]
        if node.op not in ops.IDENTITY or not node.ins or g.marks[n] & (SCALAR | VECTOR | GATED):
            return None
        n = node.ins[0]
    return None


def _axis(shape: tuple[int, ...], inner: int) -> tuple[int, int] | None:
    """The axis that holds a lane axis with `inner` elements inside, and how many of them lie inside that axis."""
    size = 1
    for dim in range(len(shape) - 1, -1, -1):
        if size <= inner < size * shape[dim]:
            return dim, inner // size
        size *= shape[dim]
    return None


def _moved(node: "Node", dim: int, rank: int) -> int | None:
    if node.op == "t":
        return 1 - dim if rank == 2 else dim
    if node.op == "transpose":
        a, b = (int(x) % rank for x in node.args[1:3])
        return b if dim == a else a if dim == b else dim
    if node.op == "permute":
        return [int(d) % rank for d in node.args[1]].index(dim)
    return None
