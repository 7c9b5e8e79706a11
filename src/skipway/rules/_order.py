"""Whether a model that mixes along the first axis of its inputs is meant to: (token, batch, channel) instead of (batch, token, channel).

The two are one function where every operation besides attention is per row, so other signs must decide.
"""

import torch
from torch import Tensor

from skipway.rules._real import Real
from skipway.wiring.streams import ancestors


def sequence_first(real: Real) -> bool:
    """Whether the second axis of the inputs is the batch: nothing mixes along it, and nothing says that it is the tokens' axis."""
    g = real.graph
    carried = ancestors(g, tuple(f.root.node for f in real.flows if f.main))
    inputs = [n.id for n in real.record.nodes if n.op == "input" and n.id in carried and len(n.shape) > 1]
    if not inputs:
        return False
    largest = max(inputs, key=lambda n: len(g.nodes[n].shape))
    first, second = g.nodes[largest].shape[:2]
    inputs = [n for n in inputs if g.nodes[n].shape[1] == second]
    if second == 1:                                         # a sequence of one sample, rather than samples of one token
        return True
    if not _apart(real, inputs, second):
        return False
    if len({g.nodes[n].shape[0] for n in inputs}) > 1:
        return True
    tables = [_along(real, n, first, second) for n in range(len(g.nodes))]
    if 0 in tables or 1 in tables:
        return 0 in tables and 1 not in tables
    if any(_without(g.nodes[n].shape, first, second) for n in real.record.outputs[:1]):
        return True
    return first > second


def _apart(real: Real, inputs: list[int], size: int) -> bool:
    """Whether the slices of the inputs along their second axis never meet: in no join, and in no output."""
    given = {n: _other(real.value(n)) for n in inputs}
    joins = [s.place.join.node for s in real.spots]
    with torch.no_grad():
        made = real.evaluate([*joins, *real.record.outputs], given)
    for n, after in made.items():
        before = real.value(n)
        if before.shape != after.shape:
            return False
        moved = (before != after) & ~(before.isnan() & after.isnan())
        if bool(moved.any()) and not any(moved.shape[d] == size and not bool(moved.narrow(d, 1, size - 1).any()) for d in range(moved.dim())):
            return False
    return True


def _other(value: Tensor) -> Tensor:
    """The input with its first slice along the second axis replaced."""
    other = value.clone()
    other[:, 0] = value[:, 1]
    if value.is_floating_point():
        other[:, 0] = other[:, 0] * 0.5 + 1
    return other


def _along(real: Real, n: int, first: int, second: int) -> int | None:
    """0 or 1: the axis of a (first, second, channel) value along which a table that is added to it varies; None where none is."""
    g = real.graph
    node = g.nodes[n]
    if node.op != "add" or len(node.ins) != 2 or len(node.shape) != 3 or node.shape[:2] != (first, second):
        return None
    for table, signal in (node.ins, node.ins[::-1]):
        if g.signal[signal] and not g.depends[table]:
            shape = (1,) * (3 - len(g.nodes[table].shape)) + g.nodes[table].shape
            if shape[0] == 1 < shape[1]:
                return 1
            if shape[1] == 1 < shape[0]:
                return 0
    return None


def _without(shape: tuple[int, ...], first: int, second: int) -> bool:
    """Whether an output has lost the first axis and kept the second."""
    return first != second and first not in shape[:2] and second in shape[:2]


__all__ = ["sequence_first"]
