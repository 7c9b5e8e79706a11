"""Where in the running code each join of a wiring is performed: found by one recorded forward that also notes the functions it calls."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from skipway._errors import RewireError
from skipway.surgery._reads import Read, reads_of
from skipway.wiring.forward import How, record
from skipway.wiring.functions import Added, FunctionLog, Kind
from skipway.wiring.record import Recorder
from skipway.wiring.sites import channel_axis
from skipway.wiring.structure import Site
from skipway.wiring.trace import Recovery, label, uncollected


@dataclass(frozen=True)
class Spot:
    """One site as the code performs it."""

    number: int                 # of the site among all of the model, main streams first
    stream: str
    main: bool
    sites: int                  # how many the stream has
    site: Site
    module: str                 # path of the module whose forward performs it
    call: int                   # which call of that module in one forward of the model
    calls: int                  # how many there are
    kind: Kind
    ordinal: int                # which call of this kind within the call of the module, calls inside its children included
    total: int                  # how many there are
    first: bool                 # the shortcut is the first operand
    negative: bool              # the branch is subtracted
    written: bool               # it is a call that writes into its operand (x.add_(y)), and not an assignment (x += y)
    axis: int                   # of the channels, from the end
    dim: int                    # number of channels
    dtype: str                  # of the state after it, as torch names it
    norm: str                   # class of norm that the stream's sites use, "LayerNorm" where they use none
    reads: tuple[Read, ...] | None = field(default=None, repr=False)    # None: a branch reads the stream other than through a call

    def __str__(self) -> str:
        return f"site {self.site.index} of {self.stream!r} in {self.module or 'the model'!r}"


def spots(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Recovery, list[Spot | RewireError]]:
    """The recovered wiring, and for each of its sites, main streams first, its spot, or why it has none."""
    logs: list[FunctionLog] = []

    def around(recorder: Recorder) -> FunctionLog:
        logs.append(FunctionLog(recorder))
        return logs[-1]

    with uncollected():
        facts = Recovery(label(record(model, args, kwargs, How(around=around))))
    added = logs[-1].added
    found: list[Spot | RewireError] = []
    for flow in facts.flows:
        if flow.stream is None:
            continue
        norm = next((s.norm for s in flow.stream.sites if s.norm in ("LayerNorm", "RMSNorm")), "LayerNorm")
        for place, site in zip(flow.places, flow.stream.sites, strict=True):
            try:
                found.append(_spot(facts, added, place, site, flow, len(found), norm))
            except RewireError as error:
                found.append(error)
    return facts, found


def _spot(facts: Recovery, added: list[Added], place: Any, site: Site, flow: Any, number: int, norm: str) -> Spot:
    found, join = facts.record, place.join
    where = f"site {site.index} of {flow.stream.name!r} in {site.module or 'the model'!r}"
    source = f" ({site.file}:{site.line})" if site.file else ""
    node = found.nodes[join.node]
    mine = next((a for a in added if a.first <= join.node < a.last), None)
    if mine is None or flow.stream.lanes > 1:
        how = f"mixes {flow.stream.lanes} lanes" if flow.stream.lanes > 1 else f"is performed by {node.op}, and no add of torch is seen there"
        raise RewireError(f"rewire: {where}{source} {how}; an edit takes one lane and x + y, x += y, torch.add or their differences")
    if place.call not in mine.stack and place.call != 0:
        raise RewireError(f"rewire: {where}{source} is performed outside the module that it is told of; give the model as it is called in training")
    if join.shortcut not in node.ins or (mine.alpha != 1 and mine.kind.name == "sub"):
        raise RewireError(f"rewire: {where}{source} does not add its shortcut itself; write it as an add of two tensors")
    call = found.calls[place.call]
    within = [a for a in added if a.kind == mine.kind and (place.call in a.stack or place.call == 0)]
    calls = 1 + max(c.number for c in found.calls if c.module is call.module)
    axis = channel_axis(facts.graph, place) - len(node.shape)
    dim = node.shape[axis] if node.shape else 1
    return Spot(number, flow.stream.name, flow.main, len(flow.places), site, call.path, call.number, calls, mine.kind, within.index(mine),
                len(within), node.ins.index(join.shortcut) == 0, mine.kind.name == "sub",
                site.in_place and not mine.rebinds, axis, dim, str(node.dtype).removeprefix("torch."), norm,
                reads_of(facts, place))


def dtype_of(module: nn.Module) -> tuple[torch.dtype, torch.device]:
    """Dtype and device of most floating parameters of a module; torch's own where it has none."""
    kinds = Counter((p.dtype, p.device) for p in module.parameters() if p.is_floating_point())
    return kinds.most_common(1)[0][0] if kinds else (torch.get_default_dtype(), torch.device("cpu"))


