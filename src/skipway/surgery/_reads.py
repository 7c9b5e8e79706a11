"""Where a branch reads the stream: the calls of modules that are given the state, so that what they are given can be changed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skipway.wiring.sites import Place
    from skipway.wiring.trace import Recovery


@dataclass(frozen=True)
class Read:
    """One call of a module that reads the stream for a branch. `norm`: that call is the branch's own norm."""

    module: str
    call: int               # which call of that module in one forward of the model
    calls: int              # how many there are
    norm: bool


def reads_of(facts: "Recovery", place: "Place") -> tuple[Read, ...] | None:
    """The outermost calls through which the branches of a site read the stream, and None where some read it without one."""
    record, g, join = facts.record, facts.graph, place.join
    inside = set(join.region.nodes)
    states = {s for h in join.region.hits if (s := g.state[h]) is not None}
    norms = {n.call for t in place.terms for n in t.in_norms}
    found: dict[int, Read] = {}
    covered: set[int] = set()
    for call in record.calls[1:]:
        if call.first <= join.node < call.last or call.last <= call.first:
            continue
        given = any(g.state[n] in states for _, n in call.ins)
        if given and any(n in inside for n in range(call.first, call.last)) and not any(_within(facts, call.id, c) for c in found):
            calls = 1 + max(c.number for c in record.calls if c.module is call.module)
            found[call.id] = Read(call.path, call.number, calls, call.id in norms)
            covered.update(range(call.first, call.last))
    for n in inside:
        if n not in covered and any(g.state[i] in states for i in g.nodes[n].ins):
            return None
    return tuple(found.values()) or None


def _within(facts: "Recovery", call: int, outer: int) -> bool:
    while call >= 0 and call != outer:
        call = facts.record.calls[call].parent
    return call == outer
