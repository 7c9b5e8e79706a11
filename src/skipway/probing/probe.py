"""The public function `probe`: one forward, and with a loss one backward, measured at every join."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import TraceError, UsageError
from skipway.probing._gradient import Identity
from skipway.probing._lanes import Lanes
from skipway.probing._plan import Plan, plans
from skipway.probing._statistics import NAMES, effective_ranks, join_statistics
from skipway.probing.table import Row, Table, summarize
from skipway.wiring import trace
from skipway.wiring.graph import Graph
from skipway.wiring.record import tensors_in
from skipway.wiring.watch import Watch, unmet, watch

Loss = Callable[[Any], Tensor]


def probe(model: nn.Module, *args: Any, loss: Loss | None = None, **kwargs: Any) -> Table:
    """What signal and gradient do at each join of `model(*args, **kwargs)`.

    One forward in the mode and dtype that the model is in; with `loss`, which gets the model's output and returns one number, also one
    backward. Nothing is kept but the numbers of the rows; the model, its gradients and the random state are left as they were.

    Returns:
        A `Table`: a `Row` for each site of the main streams (see there for formulas and units) and a `Summary` for each stream.

    Raises:
        TraceError: the forward fails, or takes another path than when it is traced.
        NeedsDataError: a weight is on the meta device.
        UsageError: an input is not finite, or the loss is no single number.

    Examples:
        >>> table = skipway.probe(model, ids, loss=lambda out: out.logits.logsumexp(-1).mean())
        >>> [round(r.ratio, 2) for r in table.rows]
        [0.91, 0.74]
    """
    check_inputs(args, kwargs)
    wiring = trace(model, *args, **kwargs)
    if not wiring.sites:
        raise TraceError(f"probe: {type(model).__name__} has no residual stream with these inputs: there is no join to measure at")
    measured = _Measurement(model, plans(wiring), wiring.facts.graph)
    try:
        mode = watch(model, args, kwargs, measured.meetings(), grad=loss is not None, finish=measured.finish(loss), make=measured.attach)
    finally:
        measured.gradients.unhook()
    if mode.missed():
        raise unmet(mode)
    kinds = sorted({str(p.dtype).removeprefix("torch.") for p in model.parameters() if p.is_floating_point()})
    table = Table(measured.rows(), (), type(model).__name__, wiring.parameters, "+".join(kinds), model.training, "given",
                  measured.loss, tuple(dict.fromkeys((*wiring.notes, *measured.notes))), None, wiring.to_dict())
    return with_summary(table, measured.stems())


def with_summary(table: Table, stems: dict[str, float] | None = None) -> Table:
    """The table with its summaries worked out anew from its rows."""
    stems = stems if stems is not None else {s.stream: s.stem_identity for s in table.summary if s.stem_identity is not None}
    streams = tuple(dict.fromkeys(r.stream for r in table.rows))
    return replace(table, summary=tuple(summarize(s, [r for r in table.rows if r.stream == s], stems.get(s)) for s in streams))


def check_inputs(args: Any, kwargs: Any) -> None:
    """Raises UsageError where an input already holds what is not finite."""
    for name, value in (*((str(i), a) for i, a in enumerate(args)), *kwargs.items()):
        for t in tensors_in(value):
            if t.is_floating_point() and not t.is_meta and bool(t.isnan().any()):
                raise UsageError(f"probe: input {name!r} of shape {tuple(t.shape)} holds a NaN, so nothing behind it could be finite; mend the data")


class _Measurement:
    """Collects, while the forward runs, what the rows are made of."""

    def __init__(self, model: nn.Module, found: list[Plan], graph: Graph) -> None:
        self.model, self.plans = model, found
        self.numbers: dict[int, Tensor] = {}
        self.grams: dict[int, Tensor] = {}
        self.lanes = Lanes(graph, found)
        self.held: dict[tuple[int, str], Tensor] = {}
        self.gradients = Identity(found, model, graph.record)
        self.loss: float | None = None
        self.grad = False
        self.notes: list[str] = []
        self.mode: Watch | None = None

    def attach(self, model: nn.Module, wanted: Any) -> Watch:
        self.mode = Watch(model, wanted)
        return self.mode

    def meetings(self) -> dict[Any, Any]:
        """What is done at which operation."""
        found: dict[Any, Any] = {}
        for k, plan in enumerate(self.plans):
            for name, address in plan.caught.items():
                found[address] = self._catch(k, name, found.get(address))
        found.update(self.lanes.meetings())
        for k, plan in enumerate(self.plans):
            found[plan.join] = self._join(k, plan, found.get(plan.join))
        return found

    def _catch(self, k: int, name: str, inner: Any) -> Any:
        def meet(func: Any, args: Any, kwargs: Any) -> Any:
            out = inner(func, args, kwargs) if inner else func(*args, **kwargs)
            self.held[k, name] = next(iter(tensors_in(out)))
            return out
        return meet

    def _join(self, k: int, plan: Plan, inner: Any) -> Any:
        def meet(func: Any, args: Any, kwargs: Any) -> Any:
            tensors = list(tensors_in((args, kwargs), depth=2))
            x = tensors[plan.shortcut] if plan.shortcut is not None else self.held.pop((k, "shortcut"))
            b = tensors[plan.branch] if plan.branch is not None else self.held.pop((k, "branch"), None)
            first = k == 0 or self.plans[k - 1].stream != plan.stream
            if self.grad:
                self.gradients.operands(k, x if first else None, b)
            written = func._schema.name.endswith("_") or any(a.is_out for a in func._schema.arguments)
            x = x.detach().clone() if written else x.detach()
            write = None if b is None or plan.factor is None else b.detach() if plan.factor == 1 else b.detach() * plan.factor
            write = write.clone() if written and write is not None else write
            out = inner(func, args, kwargs) if inner else func(*args, **kwargs)
            y = next(iter(tensors_in(out)))
            self._measure(k, plan, x, write, y.detach())
            if self.grad:
                assert self.mode is not None
                self.mode.later(y, lambda t: self.gradients.state(k, t))
            return out
        return meet

    def _measure(self, k: int, plan: Plan, x: Tensor, write: Tensor | None, y: Tensor) -> None:
        if x.shape != y.shape:
            x = x.expand(y.shape) if x.dim() <= y.dim() and x.numel() < y.numel() else x.reshape(y.shape)
        write = y - x if write is None else write.expand(y.shape) if write.numel() < y.numel() else write.reshape(y.shape)
        self.numbers[k], self.grams[k] = join_statistics(x, write, y, plan.axis)
        self.lanes.state(k, y)

    def finish(self, loss: Loss | None) -> Any:
        """Called with the output before the model is put back: the backward, where there is a loss."""
        self.grad = loss is not None

        def after(out: Any, mode: Watch) -> None:
            if loss is None or mode.missed():
                return
            value = loss(out)
            if not isinstance(value, Tensor) or value.numel() != 1:
                got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                raise UsageError(f"probe: the loss returned {got}, want one number; return a scalar tensor, such as loss.mean()")
            self.loss = float(value.detach())
            if not value.requires_grad:
                self.notes.append("the loss does not depend on anything that takes a gradient: no gradients were measured")
                return
            kept = [(p, p.grad) for p in self.model.parameters()]
            try:
                for p, _ in kept:
                    p.grad = None
                value.backward()
            except RuntimeError as error:
                text = " ".join(str(error).split())[:200]
                raise TraceError(f"probe: the backward failed: {text}; skipway check --stage train names the place") from error
            finally:
                for p, grad in kept:
                    p.grad = grad
        return after

    def rows(self) -> tuple[Row, ...]:
        """The rows, read off the device at once."""
        order = sorted(self.numbers)
        if not order:
            return ()
        table = torch.stack([self.numbers[k] for k in order]).tolist()
        ranks = effective_ranks([self.grams[k] for k in order])
        gradients, lanes = self.gradients.read(), self.lanes.read()
        found = []
        for k, numbers, rank in zip(order, table, ranks, strict=True):
            plan, site = self.plans[k], self.plans[k].site
            v = dict(zip(NAMES, numbers, strict=True))
            ratio = v["branch"] / v["before"] if v["before"] else float("inf") if v["branch"] else 0.0
            found.append(Row(
                plan.stream, site.index, site.layer, site.module, "+".join(b.kind for b in site.branches), site.placement, site.file, site.line,
                v["before"], v["after"], v["branch"], ratio, v["cosine"], v["influence"], v["angle"], v["rounded"], v["largest"],
                int(v["channel"]), rank, int(v["nonfinite"]), lanes=lanes.get(k), **gradients.get(k, {})))
        return tuple(found)

    def stems(self) -> dict[str, float]:
        """The identity share of the gradient at each stream's start."""
        return self.gradients.stems()
