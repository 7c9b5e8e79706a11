"""Small questions about a node that several label files ask."""

import math

import torch

from skipway.wiring.record import Node
from skipway.wiring.states import State


def pair(node: Node, a: int, b: int) -> Node:
    """The product inside an operation that also adds, as a node of its own with the same number."""
    return Node(node.id, node.op, (a, b), node.shape, node.dtype, node.call, (), {}, 0, node.group, False, node.where)


def numel(node: Node) -> int:
    return math.prod(node.shape)


def scalar(node: Node) -> float | None:
    """The number beside the one tensor operand."""
    for a in node.args:
        if isinstance(a, (int, float)) and not isinstance(a, bool):
            return float(a)
    value = node.kwargs.get("exponent", node.kwargs.get("other"))
    return float(value) if isinstance(value, (int, float)) else None


def oldest(states: list[State]) -> State | None:
    """The state that all others continue, if there is one."""
    first = min(states, key=lambda s: s.depth)
    return first if all(s.has(first) for s in states) else None


def narrower(to: torch.dtype, of: torch.dtype) -> bool:
    return to.is_floating_point and of.is_floating_point and to.itemsize < of.itemsize
