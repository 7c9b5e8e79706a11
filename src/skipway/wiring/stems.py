"""Streams that start from a learned table or from zeros: queries of a decoder, latents, class tokens.

Such a table is a side input until it is added to what was computed from it through something learned. Then it is a stream.
"""

from typing import TYPE_CHECKING

from skipway.wiring import operations as ops

if TYPE_CHECKING:
    from skipway.wiring.graph import Graph

_LEARNED = ops.MATMULS | ops.CONVOLUTIONS | ops.ATTENTIONS


def next_stem(g: "Graph") -> int | None:
    """The first value that is no signal and yet the shortcut of an add, walked back to the table it is; None where there is none."""
    for node in g.nodes:
        if node.op != "add" or len(node.ins) != 2 or not node.dtype.is_floating_point or len(node.shape) < 2:
            continue
        for table, branch in (node.ins, node.ins[::-1]):
            if not g.signal[table] and _fits(g.nodes[table].shape, node.shape) and g.nodes[branch].shape == node.shape and _enters(g, table, branch):
                return _origin(g, table)
    return None


def _fits(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Equal shapes, or a table that is spread over the batch."""
    return len(shape) > 1 and shape[-1] > 1 and (shape == whole or (shape[-2:] == whole[-2:] and len(whole) <= 3 and max(shape[:-2], default=1) == 1))


def _enters(g: "Graph", table: int, branch: int) -> bool:
    """Whether `branch` is computed from `table` through a learned operation that it enters before it meets any signal."""
    state = g.state[branch]
    if state is not None and state.via in ("join", "product", "stem"):
        return False
    plain, entered = {_origin(g, table)}, set[int]()
    for node in g.nodes[min(plain) + 1: branch + 1]:
        if not entered.isdisjoint(node.ins):
            entered.add(node.id)
        elif not plain.isdisjoint(node.ins):
            if node.op in _LEARNED:
                entered.add(node.id)
            elif not g.signal[node.id]:
                plain.add(node.id)
    return branch in entered


def _origin(g: "Graph", n: int) -> int:
    node = g.nodes[n]
    while node.op in ops.IDENTITY | ops.PARTS and node.ins:
        node = g.nodes[node.ins[0]]
    return node.id
