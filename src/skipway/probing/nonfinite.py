"""Where the first NaN or infinity comes from: the operation that makes one out of finite values, apart from those that pass it on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from skipway.probing._lines import lines_of
from skipway.wiring import operations as ops
from skipway.wiring.record import LEAVES, Node, Record
from skipway.wiring.values import Run, run

# What a softmax is taken of may be minus infinity; operations that lead there from where a mask was put in.
ELEMENTWISE = ops.IDENTITY | ops.ADDS | frozenset(["mul", "div", "where", "masked_fill", "index_put", "fill", "copy", "patch", "reread", "scatter"])


@dataclass(frozen=True)
class Origin:
    """One operation that makes what is not finite out of what is. `what`: "NaN" or "infinity"; `part`: "site 3", "branch", "norm", "weight"..."""

    module: str
    operation: str
    what: str
    part: str
    file: str | None
    line: int | None
    elements: int


@dataclass(frozen=True)
class NonFinite:
    """origins: producers, in order of use. passed_on: paths of modules whose outputs only hold what an origin made, in order."""

    origins: tuple[Origin, ...]
    passed_on: tuple[str, ...]

    @property
    def first(self) -> Origin | None:
        """The producer that comes first, or None where everything is finite."""
        return self.origins[0] if self.origins else None


def find_nonfinite(model: nn.Module, *args: Any, **kwargs: Any) -> NonFinite:
    """Run the model once and find the producers of NaN and infinity.

    An infinity that a mask puts in (minus infinity before a softmax) is meant and is followed only where something makes a NaN of it.

    Raises:
        TraceError: the forward fails.
        NeedsDataError: a weight is on the meta device.
    """
    found = run(model, args, kwargs)
    return origins_of(found, lambda nodes: lines_of(model, args, kwargs, found.record, nodes))


def origins_of(found: Run, lines: Callable[[list[int]], dict[int, tuple[str, int]]] | None = None) -> NonFinite:
    """`find_nonfinite` of a run that was made already. lines: the source lines of nodes that the record has none for."""
    record, values = found.record, found.values
    bad: dict[int, str] = {}
    masked = _masked(record)
    origins: list[Node] = []
    for node in record.nodes:
        value = values.get(node.id)
        if value is None or not value.is_floating_point():
            continue
        nan, inf = _holds(value)
        if not nan and not inf:
            continue
        above = [i for i in node.ins if i in bad]
        if nan:
            bad[node.id] = "NaN"
            if not any(bad[i] == "NaN" for i in above) and (not above or _invents(above, bad)):
                origins.append(node)
        elif above or not _meant(found, node, value, masked):
            bad[node.id] = "infinity"
            if not above:
                origins.append(node)
    kept = [n for n in origins if _matters(found, n)]
    known = lines([n.id for n in kept if n.where is None]) if lines is not None and kept else {}
    return NonFinite(tuple(_origin(found, n, bad[n.id], known.get(n.id)) for n in kept), _passed(found, bad, kept))


def _holds(value: Tensor) -> tuple[bool, bool]:
    value = value.detach()
    finite = torch.isfinite(value)
    if bool(finite.all()):
        return False, False
    nan = bool(value.isnan().any())
    return nan, True


def _invents(above: list[int], bad: dict[int, str]) -> bool:
    """A NaN that is made of an infinity is a consequence of it."""
    return not any(bad[i] == "infinity" for i in above)


def _masked(record: Record) -> set[int]:
    """Nodes that a softmax is taken of, back through elementwise operations: where minus infinity is a mask."""
    found: set[int] = set()
    stack = [i for n in record.nodes if n.op in ops.SOFTMAXES or n.op in ("logsumexp", "log_softmax", "_log_softmax") for i in n.ins[:1]]
    while stack:
        n = stack.pop()
        if n in found:
            continue
        found.add(n)
        if record.nodes[n].op in ELEMENTWISE:
            stack.extend(record.nodes[n].ins)
    return found


def _meant(found: Run, node: Node, value: Tensor, masked: set[int]) -> bool:
    """Minus infinity that a mask puts in: in what a softmax is taken of, or in a table that carries no signal."""
    if bool((value == float("inf")).any()) or node.op == "param":
        return False
    return node.id in masked or not found.facts.graph.signal[node.id]


def _matters(found: Run, node: Node) -> bool:
    """Whether what an operation made goes anywhere: something uses it, or it is an output."""
    return bool(found.facts.graph.users[node.id]) or node.id in found.record.outputs


def _origin(found: Run, node: Node, what: str, line_met: tuple[str, int] | None) -> Origin:
    record = found.record
    call = record.calls[node.call]
    if node.op in ("param", "buffer"):
        module, part = node.name, "weight"
    else:
        module, part = call.path, _part(found, node)
    where = node.where or line_met
    holder = call
    while where is None and node.op not in LEAVES:
        if holder.where is not None or holder.parent < 0 or holder.parent == holder.id:
            where = holder.where
            break
        holder = record.calls[holder.parent]
    file, line = where or (None, None)
    value = found.values[node.id].detach()
    return Origin(module, node.op, what, part, file, line, int((~torch.isfinite(value)).sum()))


def _part(found: Run, node: Node) -> str:
    """Which part of the wiring an operation belongs to."""
    for flow in found.facts.flows:
        if flow.stream is None:
            continue
        for place, site in zip(flow.places, flow.stream.sites, strict=True):
            if node.id == place.join.node:
                return f"site {site.index} of stream {flow.stream.name}"
            if node.id in place.join.region.nodes:
                norm = any(n.call == node.call for t in place.terms for n in (*t.in_norms, *t.inner_norms, *([t.out_norm] if t.out_norm else [])))
                return f"{'norm' if norm else 'branch'} of site {site.index} of stream {flow.stream.name}"
            if any(n.call == node.call for n in place.norms):
                return f"norm of site {site.index} of stream {flow.stream.name}"
    return "outside the streams"


def _passed(found: Run, bad: dict[int, str], origins: list[Node]) -> tuple[str, ...]:
    """Modules whose output is not finite and that hold no producer, innermost ones first in order of use."""
    made = {n.call for n in origins}
    record = found.record
    holders = set()
    for call in made:
        while call >= 0 and call not in holders:
            holders.add(call)
            call = record.calls[call].parent
    passed = [c.path for c in record.calls if c.id not in holders and any(n in bad for _, n in c.outs)]
    return tuple(dict.fromkeys(passed))
