"""Lanes that are fractions of one stream: its channels are cut into m parts, the parts are mixed and written each with its part of the branch.

A cut alone says nothing, heads are cut the same way. It makes lanes where the parts of a value are added with a weight a token each, or
multiplied by an m x m matrix, and the result is the shortcut of a join: what could be is looked up in the first labelling, tried in a second one,
and kept where it turned out so. Parts in a list are values of their own: each is written by an add, and the first of these is told as the join.
"""

import math
from typing import TYPE_CHECKING

from skipway.wiring import operations as ops
from skipway.wiring.states import MIXED, MOVED, PART, State

if TYPE_CHECKING:
    from skipway.wiring.graph import Graph
    from skipway.wiring.record import Node

MOST = 16
_VIEWS = frozenset(["view", "_unsafe_view", "reshape", "_reshape_alias", "unflatten"])
_PARTS = frozenset(["split", "split_with_sizes", "unsafe_split", "chunk", "slice", "unbind", "select"])
_FAR = 12

Cut = tuple[int, int]                   # a value, and the number of its parts
Part = tuple[Cut, int]                  # which part of a cut, or SEVERAL
SEVERAL = -1


def find(g: "Graph") -> frozenset[int]:
    """Views and parts of channels that are mixed with each other, and so may be lanes."""
    parts: dict[int, Part] = {}
    members: dict[Cut, dict[int, int]] = {}                     # nodes of the parts -> which they are
    views: set[int] = set()
    mixed: set[Cut] = set()
    for node in g.nodes:
        if not g.signal[node.id] or not node.ins:
            continue
        part = _part(g, node) if node.op in _PARTS else None
        own = [parts[i] for i in node.ins if i in parts] if parts else []
        if part is not None:
            parts[node.id] = part
            members.setdefault(part[0], {})[node.id] = part[1]
        elif own and _stays(g, node, parts):
            cut, which = own[0]
            parts[node.id] = cut, which if len(own) == 1 else SEVERAL
            if any(p != own[0] for p in own) and all(p[0] == cut for p in own):
                mixed.add(cut)
        if node.op in ops.MATMULS or node.op == "sum":
            views |= _multiplied(g, node)
    return frozenset(views) | {n for cut in mixed if len(set(members[cut].values())) == cut[1] for n in members[cut]}


def kept(g: "Graph") -> frozenset[int]:
    """Those of the cuts that a graph was labelled with which turned out to be lanes: a join's shortcut is mixed of them."""
    lanes = {j.before.root for j in g.joins.found if g.marks[j.shortcut] & MIXED and (j.node in g.lane or j.node in g.parts)}
    return frozenset(n for n in g.cuts if (s := g.state[n]) is not None and s.root in lanes)


def _part(g: "Graph", node: "Node") -> Part | None:
    """Which part of which value a node is, where it is one of 2 to MOST equal parts of the channels."""
    source = g.nodes[node.ins[0]]
    count = math.prod(source.shape) // max(math.prod(node.shape), 1)
    if not 2 <= count <= MOST or count * math.prod(node.shape) != math.prod(source.shape):
        return None
    cut, rank, args = (source.id, count), len(source.shape), node.args
    if node.op in ("split", "split_with_sizes", "unsafe_split", "chunk", "slice"):
        if len(node.shape) != rank or rank < 2 or node.shape[:-1] != source.shape[:-1]:
            return None
        start = node.out * node.shape[-1] if node.op != "slice" else args[2] if len(args) > 2 and isinstance(args[2], int) else 0
        return (cut, start // node.shape[-1]) if start % node.shape[-1] == 0 else None
    if node.op in ("unbind", "select") and rank > 2 and _cuts(g, source):
        dim = args[1] if len(args) > 1 else 0
        return (cut, node.out if node.op == "unbind" else args[2] % count) if dim % rank == rank - 2 else None
    return None


def _cuts(g: "Graph", node: "Node") -> bool:
    """Whether a view cuts the channels, (..., m w) -> (..., m, w)."""
    if node.op not in _VIEWS or not node.ins:
        return False
    whole, cut = g.nodes[node.ins[0]].shape, node.shape
    return len(whole) > 1 and len(cut) > 2 and 2 <= cut[-2] <= MOST and cut[-1] > 1 and cut[-2] * cut[-1] == whole[-1]


def _stays(g: "Graph", node: "Node", parts: dict[int, Part]) -> bool:
    """Whether a node still is a part, or a sum of parts: moved, or with one weight a token."""
    if node.op in ops.IDENTITY:
        return math.prod(node.shape) == math.prod(g.nodes[node.ins[0]].shape)
    if node.op == "mul" and len(node.ins) == 2:
        return any(math.prod(g.nodes[i].shape) == 1 or g.nodes[i].shape[-1] == 1 for i in node.ins if i not in parts)
    return node.op == "stack" or (node.op == "add" and (len(node.ins) == 1 or all(i in parts for i in node.ins)))


def _multiplied(g: "Graph", node: "Node") -> set[int]:
    """The views whose parts a square matrix mixes here, as a product or as a sum over a broadcast product."""
    nodes, shape = g.nodes, node.shape
    if node.op in ops.MATMULS:
        if len(node.ins) != 2:
            return set()
        a, b = (nodes[i].shape for i in node.ins)
        if len(a) < 2 or len(b) < 2:
            return set()
        left, right = a[-2] == a[-1] <= MOST, b[-2] == b[-1] <= MOST
        found = [_view(g, node.ins[1], a[-1])] if left else []
        found += [_view(g, node.ins[0], b[-1])] if right else []
        return {n for n in found if n is not None}
    if nodes[node.ins[0]].op == "mul":
        product = nodes[node.ins[0]]
        count = math.prod(product.shape) // max(math.prod(shape), 1)
        if count * math.prod(shape) == math.prod(product.shape) and 2 <= count <= MOST:
            return {n for i in product.ins if math.prod(nodes[i].shape) == math.prod(shape) and (n := _view(g, i, count)) is not None}
    return set()


def _view(g: "Graph", n: int, count: int) -> int | None:
    """The view that cut what a node is made of by moves and views alone."""
    for _ in range(_FAR):
        node = g.nodes[n]
        if not g.signal[n]:
            return None
        if _cuts(g, node) and node.shape[-2] == count:
            return n
        if node.op not in ops.IDENTITY or not node.ins:
            return None
        n = node.ins[0]
    return None


# the second labelling

def born(g: "Graph", node: "Node") -> None:
    """A cut that may make lanes: of a view the lane axis, of a part which one it is."""
    n, source = node.id, node.ins[0]
    g.carry(node, source, 0 if node.op in _VIEWS else PART)
    if node.op in _VIEWS:
        g.lane[n] = node.shape[-1], node.shape[-2]
    else:
        g.parts[n] = math.prod(g.nodes[source].shape) // math.prod(node.shape)


def mix(g: "Graph", node: "Node", a: int, b: int) -> bool:
    """Two parts of one state are added: the parts are mixed."""
    if a not in g.parts or b not in g.parts:
        return False
    state = g.state[a]
    assert state is not None
    g.carry(node, a, MIXED)
    g.scale(node.id, 1.0)
    g.gate[node.id] = 0
    g.parts[node.id] = g.parts[a]
    g.mixed[state.root] = max(g.parts[a], g.mixed.get(state.root, 1))
    return True


def gathered(g: "Graph", node: "Node", signals: list[int]) -> None:
    """Parts set beside each other are the whole again, or lanes along a new axis."""
    if all(i in g.parts for i in signals):
        g.marks[node.id] &= ~(PART | MOVED)


def sibling(g: "Graph", node: "Node", a: int, b: int) -> bool:
    """Another part of a state that joined already is written with another part of the same branch."""
    join = g.joins.found[-1] if g.parts and g.joins.found else None
    if join is None or join.node not in g.parts:
        return False
    for part, branch in ((a, b), (b, a)):
        if part in g.parts and join.before is g.state[part] and _whole(g, branch) is _whole(g, join.branch):
            g.state[node.id], g.marks[node.id] = join.after, PART
            g.parts[node.id] = g.parts[part]
            return True
    return False


def _whole(g: "Graph", n: int) -> State | None:
    """The state that a weighted part is a part of."""
    for _ in range(_FAR):
        state = g.state[n]
        if state is None or state.via not in ("part", "product"):
            return state
        if state.via == "part":
            return state.prev
        n = max(g.nodes[state.node].ins, key=lambda i: math.prod(g.nodes[i].shape))
    return None


def follow(g: "Graph", node: "Node", signals: list[int]) -> None:
    """What a part is, it stays through moves, weights and joins."""
    state = g.state[node.id]
    if node.op in ("cat", "stack") or node.id in g.parts or state is None:
        return
    join = g.joins.by_state.get(state) if state.node == node.id else None
    for i in signals if join is None else [join.shortcut]:
        if i in g.parts and (join is not None or g.state[i] is state):
            g.parts[node.id] = g.parts[i]
            return
