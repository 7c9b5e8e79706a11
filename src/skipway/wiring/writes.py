"""In-place writes that reach a tensor somebody else still holds.

A write inside a module call is legal where the tensor was made inside, or where the call returns it: the caller takes the result
for the old value. It is not where the caller goes on to use what it passed in.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from skipway.wiring.record import Call, Record

if TYPE_CHECKING:
    from skipway.wiring.graph import Graph


def overwritten_inputs(record: Record) -> Iterator[tuple[int, str]]:
    """Writes into the tensors that the model's caller passed in."""
    owned = {record.nodes[n].group: record.nodes[n].name for n in range(len(record.nodes)) if record.nodes[n].op == "input"}
    for node in record.nodes:
        if node.write and node.group in owned and node.dtype.is_floating_point and not _cache(owned[node.group]):
            yield node.id, f"the model's own input {owned[node.group]!r}"


def overwritten_states(record: Record) -> Iterator[tuple[int, str]]:
    """Writes into a tensor that a caller passed to a module and later uses, or returns, as if it were unchanged."""
    readers = _readers(record)
    for node in record.nodes:
        if not node.write or not node.dtype.is_floating_point or node.op == "statistics":
            continue
        call = _careless(record, node.id)
        if call is None:
            continue
        held = {t for t, n in call.ins if record.nodes[n].group == node.group}
        if held & record.returned:
            yield node.id, f"a tensor that the caller of `{call.path}` holds and returns"
        elif any(u >= call.last for u in readers.get(node.group, ())):
            yield node.id, f"a tensor that the caller of `{call.path}` still uses"


def overwritten_shortcut(g: "Graph", shortcut: int, joiner: int) -> int | None:
    """The write that changed, inside a branch, the tensor that a join in call `joiner` adds as its shortcut."""
    nodes, home, joined = g.nodes, g.record.calls[joiner], {j.node for j in g.joins.found}
    n: int | None = shortcut
    while n is not None and n >= home.first:
        node = nodes[n]
        if node.write and n not in joined and node.op != "copy":
            call = _careless(g.record, n)
            passed = any(nodes[i].group == node.group for _, i in home.ins)
            return n if passed or (call is not None and call.id != home.id and _within(g.record, call, home)) else None
        n = next((i for i in node.ins if g.state[i] is g.state[n]), None)
    return None


def _careless(record: Record, write: int) -> Call | None:
    """The innermost call around a write that was passed the tensor and does not return it."""
    node = record.nodes[write]
    call = record.calls[node.call]
    while call.id > 0:
        passed = any(record.nodes[n].group == node.group for _, n in call.ins)
        returned = any(record.nodes[n].group == node.group for _, n in call.outs)
        if passed and not returned:
            return call
        if not passed:
            return None
        call = record.calls[call.parent]
    return None


def _within(record: Record, call: Call, home: Call) -> bool:
    while call.id > 0:
        if call.parent == home.id:
            return True
        call = record.calls[call.parent]
    return home.id == 0


def _readers(record: Record) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for node in record.nodes:
        for group in {record.nodes[i].group for i in node.ins}:
            found.setdefault(group, []).append(node.id)
    return found


def _cache(name: str) -> bool:
    return "cache" in name or "past" in name or "state" in name
