"""The causal counterpart of block influence: the loss when one branch is left out, by changing the join itself."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import UsageError
from skipway.probing._plan import plans
from skipway.probing.probe import with_summary
from skipway.probing.table import Table
from skipway.wiring import trace
from skipway.wiring.address import Address, addresses
from skipway.wiring.record import tensors_in
from skipway.wiring.sites import Place
from skipway.wiring.trace import Recovery
from skipway.wiring.watch import Meeting, unmet, watch

Loss = Callable[[Any], Tensor]


def lesion(model: nn.Module, table: Table, *args: Any, loss: Loss, said: Callable[[int, int], None] | None = None, **kwargs: Any) -> Table:
    """The table with the column `lesion`: loss without the site's branches minus the loss of the whole model.

    One forward a site, in the mode the model is in and with the same random numbers. At the join, the operand that the branches give is
    replaced by zeros, so the state goes on as the shortcut alone: equal to the last bit to a model whose code leaves the add out. Where
    several branches are summed before the join, the column `lesions` has the change for each of them alone, too. `said(done, all)` is told
    of the progress.

    Raises:
        UsageError: the loss is no single number.
        TraceError: the forward takes another path than when it is traced.
    """
    wiring = trace(model, *args, **kwargs)
    whole = _loss(model, args, kwargs, {}, loss)
    rows = []
    sites = plans(wiring)
    for k, (plan, row) in enumerate(zip(sites, table.rows, strict=True)):
        alone = {name: _loss(model, args, kwargs, wanted, loss) - whole for name, wanted in dropping_each(wiring.facts, plan.place).items()}
        change = _loss(model, args, kwargs, dropping(wiring.facts, plan.place), loss) - whole
        rows.append(replace(row, lesion=change, lesions=alone or None))
        if said is not None:
            said(k + 1, len(sites))
    return with_summary(replace(table, rows=tuple(rows), loss=whole if table.loss is None else table.loss))


def _loss(model: nn.Module, args: Any, kwargs: Any, wanted: dict[Address, Meeting], loss: Loss) -> float:
    found: list[float] = []

    def finish(out: Any, mode: Any) -> None:
        if mode.missed():
            raise unmet(mode)
        value = loss(out)
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise UsageError(f"lesion: the loss returned {got}, want one number; return a scalar tensor, such as loss.mean()")
        found.append(float(value))

    watch(model, args, kwargs, wanted, finish=finish)
    return found[0]


def dropping(facts: Recovery, place: Place) -> dict[Address, Meeting]:
    """Meetings that leave the branches of a join out: each operand that a branch gives is zeros there."""
    record = facts.record
    wanted: dict[int, list[int]] = {}
    for join in place.join.folded or (place.join,):
        node = record.nodes[join.node]
        if join.branch in node.ins and join.branch != join.node:
            wanted.setdefault(join.node, []).append(node.ins.index(join.branch))
        elif join.branch == join.node:                  # multiplies and adds at once: a zero factor is a zero product
            factors = [p for p, i in enumerate(node.ins) if i != join.shortcut]
            wanted.setdefault(join.node, []).append(factors[0])
        else:                                           # the operand is made elsewhere (a stack that is summed): zeros from there on
            wanted.setdefault(join.branch, []).append(-1)
    known = addresses(record, wanted)
    return {known[n]: _zeroed(positions) for n, positions in wanted.items()}


def dropping_each(facts: Recovery, place: Place) -> dict[str, dict[Address, Meeting]]:
    """The same for each of several branches that are summed before the join, by kind, or by module where a kind is there twice.

    Empty where there is one branch, or where the sum cannot be taken apart.
    """
    operands = dict(_operands(facts, place.join.branch))
    if len(place.terms) < 2 or any(t.end.node not in operands for t in place.terms):
        return {}
    known = addresses(facts.record, [node for node, _ in operands.values()])
    kinds = [t.kind for t in place.terms]
    found = {}
    for term in place.terms:
        node, position = operands[term.end.node]
        name = term.kind if kinds.count(term.kind) == 1 else next(iter(term.modules), term.kind)
        if node not in known:
            return {}
        found[name] = {known[node]: _zeroed([position])}
    return found


def _operands(facts: Recovery, n: int, consumer: tuple[int, int] | None = None) -> Iterator[tuple[int, tuple[int, int]]]:
    """The ends of the branches behind an operand, each with the sum that takes it and its position there: the walk of `sites.describe`."""
    g = facts.graph
    state = g.state[n]
    if state is None:
        return
    if state.via == "norm" and state.norm is not None:
        yield from _operands(facts, state.norm.source)
        return
    parts = g.terms.get(state.node, ()) if state.via != "join" else ()
    if len(parts) > 1:
        ins = g.nodes[state.node].ins
        for part in parts:
            if part in ins:
                yield from _operands(facts, part, (state.node, ins.index(part)))
    elif consumer is not None:
        yield (n if state.via == "join" else state.node), consumer


def _zeroed(positions: list[int]) -> Meeting:
    def meet(func: Any, args: Any, kwargs: Any) -> Any:
        if positions == [-1]:
            out = func(*args, **kwargs)
            first = next(iter(tensors_in(out)))
            return torch.zeros_like(first) if isinstance(out, Tensor) else (torch.zeros_like(first), *out[1:])
        number = iter(range(1 << 30))

        def put(value: Any) -> Any:
            if isinstance(value, Tensor):
                return torch.zeros_like(value) if next(number) in positions else value
            return [put(v) for v in value] if isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value) else value

        given = tuple([put(a) for a in args])
        return func(*given, **{k: put(v) for k, v in kwargs.items()})
    return meet
