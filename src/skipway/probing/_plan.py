"""What is measured where: for every site the operations that a watched forward has to meet, worked out from the wiring."""

from dataclasses import dataclass, field

from skipway._errors import TraceError
from skipway.wiring import Wiring
from skipway.wiring.address import Address, addresses
from skipway.wiring.graph import Graph
from skipway.wiring.sites import Place, channel_axis
from skipway.wiring.structure import Site
from skipway.wiring.trace import Recovery


@dataclass(slots=True)
class Plan:
    """One site: the address of its join, and where its operands are found there.

    shortcut, branch: position among the join's tensor arguments; None where the operand is caught when it is made, at `caught`.
    factor: the constant of the add on the branch; None where the write is the difference of the states. plain: the shortcut is the
    state before, moved but not changed, times `coefficient`; None where it is neither known nor a path that can be worked out anew.
    """

    stream: str
    site: Site
    place: Place
    join: Address
    shortcut: int | None
    branch: int | None
    factor: float | None
    axis: int
    coefficient: float | None
    plain: bool
    caught: dict[str, Address] = field(default_factory=dict)


def plans(wiring: Wiring) -> list[Plan]:
    """One plan for every site of the main streams, in order. Raises TraceError where a join has no place to be met at."""
    facts: Recovery = wiring.facts
    record, g = facts.record, facts.graph
    wanted = {p.join.node for f in facts.flows if f.main for p in f.places}
    wanted |= {n for f in facts.flows if f.main for p in f.places for n in (p.join.shortcut, p.join.branch)}
    known = addresses(record, wanted)
    found: list[Plan] = []
    for flow in facts.flows:
        if not flow.main or flow.stream is None:
            continue
        before = None
        for place, site in zip(flow.places, flow.stream.sites, strict=True):
            found.append(_plan(g, known, flow.stream.name, site, place, before))
            before = place.join.node
    return found


def _plan(g: Graph, known: dict[int, Address], stream: str, site: Site, place: Place, before: int | None) -> Plan:
    join = place.join
    node = g.nodes[join.node]
    if join.node not in known:
        raise TraceError(f"probe: the join in `{site.module}` is made by no operation that can be met; trace the model with real inputs")
    caught: dict[str, Address] = {}
    positions: list[int | None] = []
    for name, n in (("shortcut", join.shortcut), ("branch", join.branch)):
        position = node.ins.index(n) if n in node.ins else None
        if position is None and n != join.node:
            if n not in known:
                raise TraceError(f"probe: the {name} of the join in `{site.module}` is made by no operation that can be met; "
                                 "write the join as an add of two tensors")
            caught[name] = known[n]
        positions.append(position)
    factor = coefficient = None
    alpha = node.kwargs.get("alpha", 1)
    if node.op in ("add", "sub") and len(node.ins) == 2 and not join.folded and isinstance(alpha, (int, float)) and None not in positions:
        second = float(alpha) * (1 if node.op == "add" else -1)
        factor, coefficient = (second, 1.0) if positions[1] == 1 else (1.0, second)
    return Plan(stream, site, place, known[join.node], positions[0], positions[1], factor, channel_axis(g, place), coefficient,
                _moved_only(g, join.shortcut, before), caught)


def _moved_only(g: Graph, n: int, before: int | None) -> bool:
    """Whether `n` is the value of `before` in another shape at most. A stream's first shortcut is its own start."""
    while before is not None and n != before:
        node = g.nodes[n]
        if node.op not in ("view", "_unsafe_view", "reshape", "alias", "clone", "contiguous", "reread") or len(node.ins) != 1:
            return False
        n = node.ins[0]
    return True
