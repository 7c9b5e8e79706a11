"""Where an operation of a record will be met again in another forward of the same model.

An address counts operations of one name and one output shape within one call of one module, so that it holds whether numbers are
computed or not, and whichever kernels other operations are opened into.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from skipway.wiring.record import LEAVES, Node, Record


@dataclass(frozen=True, slots=True)
class Address:
    """The `ordinal`-th operation `op` that gives `shape`, in call `number` of the module at `path`."""

    path: str
    number: int
    op: str
    shape: tuple[int, ...]
    ordinal: int


def addresses(record: Record, nodes: Iterable[int]) -> dict[int, Address]:
    """The address of each node that an operation made. Leaves and re-read views have none and are left out."""
    wanted = set(nodes)
    found: dict[int, Address] = {}
    counts: dict[tuple[int, str, tuple[int, ...]], int] = {}
    before: Node | None = None
    for node in record.nodes:
        if node.op in LEAVES or node.overload is None:
            continue
        same = before is not None and node.args is before.args and node.overload is before.overload and node.id == before.id + 1 and node.out > 0
        before = node
        if same:
            continue                                    # another output of the operation before
        key = (node.call, node.op, node.shape)
        ordinal = counts[key] = counts.get(key, -1) + 1
        if node.id in wanted:
            call = record.calls[node.call]
            found[node.id] = Address(call.path, call.number, node.op, node.shape, ordinal)
    return found
