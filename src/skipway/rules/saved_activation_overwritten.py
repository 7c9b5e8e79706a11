"""saved-activation-overwritten: an in-place add overwrites a tensor that backward needs.

What it does
    Runs one forward and backward in training mode. Where the backward fails because a saved tensor was written to, or the forward
    because autograd does not allow the write, names the write: the forward is run again and every tensor that an operation
    keeps for its backward is followed to the first write that changed it.
Why it matters
    torch's message gives a shape and a version number, not a place, and it comes from a backward that knows no source line.
    Evaluation runs, and so does a forward under `no_grad`, so the fault is met when training starts.
Fires on
    `x += attn(norm(x))` where the norm keeps x; `h = torch.sigmoid(x); h += f(h)`, as sigmoid keeps its result; `out.mul_(gate)`
    on what the next product needs; `x += f(x)` where x is an input or a parameter that requires gradients; an add into one of
    several views of a split.
Quiet on
    In-place adds and activations that nothing else kept: `out += identity` behind a batch norm, `relu_` behind a convolution. Whatever
    the backward accepts.
What to do
    Write `x = x + y`, or `x = x.clone()` before the write.
"""

import re
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import TraceError
from skipway.rules._base import Example, Facts, Hit, shape
from skipway.rules._random import seeded
from skipway.wiring.forward import How, record_values
from skipway.wiring.record import Record
from skipway.wiring.values import Keeper

CODE = "SKW603"
STAGE = "train"
SEVERITY = "error"

_LATE = "modified by an inplace operation"
_EARLY = re.compile("requires grad is being used in an in-place operation|is a view and is being modified inplace|has been modified inplace|"
                    "functions with out=")


def check(facts: Facts) -> Iterator[Hit]:
    try:
        failed = facts.train.run.failed
    except TraceError as error:
        hit = _refused(facts, error)
        if hit is None:
            raise
        yield hit
        return
    if failed is not None and _LATE in str(failed):
        yield from _overwritten(facts)


class _Saver(Keeper):
    """A forward that notes every tensor that is kept for the backward, with its version."""

    def __init__(self, model: nn.Module, dtype: torch.dtype | None) -> None:
        super().__init__(model, dtype)
        self.packed: list[tuple[Tensor, int, int, int]] = []         # tensor, its version, its node, nodes recorded so far

    def hook(self, n: int, t: Tensor) -> None:
        """No gradients are asked for: there is no backward."""

    def pack(self, t: Tensor) -> Tensor:
        if id(t) in self.current:                                   # others are no part of the record: numbers an operation keeps for itself
            n = self.version(t)
            self.packed.append((t, t._version, n, len(self.nodes)))
        return t


def _overwritten(facts: Facts) -> Iterator[Hit]:
    """One hit for each place that writes to a kept tensor."""
    runs = facts.runs
    assert runs is not None
    saver = _Saver(runs.model, runs.dtype)
    stale: list[tuple[int, int]] = []                               # kept node, nodes recorded when it was kept

    def finish(record: Record, returned: list[Tensor]) -> None:
        stale.extend((n, at) for t, version, n, at in saver.packed if t._version != version)

    with torch.autograd.graph.saved_tensors_hooks(saver.pack, lambda t: t), seeded(None):
        record = record_values(saver, runs.args, runs.kwargs, How(dtype=runs.dtype, training=True, grad=True), finish)
    live = _ancestors(record)
    told: set[str] = set()
    for n, at in stale:
        write = next((w for w, _ in saver.writes.get(record.nodes[n].group, ()) if w > n), None)
        reader = next((m.id for m in record.nodes[at:] if n in m.ins and m.op not in ("detach", "clone")), n)
        if write is None or not {reader, write} & live:
            continue
        hit = _hit(facts, record, n, write, reader)
        if hit.where not in told:
            told.add(hit.where)
            yield hit


def _ancestors(record: Record) -> set[int]:
    seen = set(record.outputs)
    stack = list(seen)
    while stack:
        for i in record.nodes[stack.pop()].ins:
            if i not in seen:
                seen.add(i)
                stack.append(i)
    return seen


def _hit(facts: Facts, record: Record, kept: int, write: int, reader: int) -> Hit:
    nodes, calls = record.nodes, record.calls
    where = calls[nodes[write].call].path or _joined_by(facts, record, write) or type(record.model).__name__
    size = nodes[kept].shape
    user = calls[nodes[reader].call].path or type(record.model).__name__
    text = (f"the in-place {nodes[write].op} in `{where}` overwrites a tensor {shape(size)} that the backward of `{user}` ({nodes[reader].op}) still "
            "needs; write the result to a new tensor, or keep a copy of the old one")
    return Hit(where, text, None, nodes[write].where or calls[nodes[write].call].where,
               {"operation": nodes[write].op, "shape": list(size), "needed_by": user, "needed_operation": nodes[reader].op})


def _joined_by(facts: Facts, record: Record, write: int) -> str:
    """The sublayer that a write in the model's own forward joins; "" where it joins none."""
    line = record.nodes[write].where
    places = [s.place for s in facts.train.spots if line is not None and facts.train.graph.nodes[s.place.join.node].where == line]
    writes = [n.id for n in record.nodes if n.write and n.where == line]
    return facts.sublayer(places[writes.index(write)]) if len(places) == len(writes) else ""


def _refused(facts: Facts, error: TraceError) -> Hit | None:
    """A write that autograd does not allow: the forward itself fails."""
    cause = error.__cause__
    if not isinstance(cause, RuntimeError) or not _EARLY.search(str(cause)):
        return None
    paths = {id(m): p for p, m in facts.modules.items()}
    where, line = "", None
    trace: TracebackType | None = cause.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        owner: Any = frame.f_locals.get("self")
        where = paths.get(id(owner), where)
        if not frame.f_code.co_filename.startswith((torch.__path__[0], _HOME)):
            line = (frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    where = where or type(facts.record.model).__name__
    text = f"autograd does not allow the in-place write in `{where}`: {' '.join(str(cause).split())[:200]}; write the result to a new tensor"
    return Hit(where, text, None, line, {"refused": True})


_HOME = __file__.rpartition("rules")[0]


class _Net(nn.Module):
    def __init__(self, block: type[nn.Module]) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 16)
        self.blocks = nn.ModuleList([block() for _ in range(2)])
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 32), nn.Linear(32, dim)

    def branch(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(self.norm(x))))


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    return Example(_Net(block).eval(), (torch.randn(2, 6, 4),), where="blocks.0", options={"stage": "train"})


def bad() -> Example:
    """The stream is written to after the norm kept it."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            x += self.branch(x)
            return x

    return _example(Block)


def good() -> Example:
    """The branch is written to: nothing kept it."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            y = self.branch(x)
            y += x
            return y

    return _example(Block)
