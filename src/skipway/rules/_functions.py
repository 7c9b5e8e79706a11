"""Custom autograd functions of one forward: what each made of what, and the gradients its own backward gives for random ones."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge

from skipway._errors import TraceError
from skipway.rules._base import Facts
from skipway.rules._random import seeded
from skipway.wiring.forward import How, record_values
from skipway.wiring.record import Record
from skipway.wiring.values import Keeper


@dataclass(eq=False)
class Application:
    """One use of a custom function: the nodes it read and made, and those between.

    given: output -> a random gradient. got: input -> what the function's backward makes of them, summed over the arguments it stands for.
    """

    function: type
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    region: frozenset[int]
    given: dict[int, Tensor] = field(default_factory=dict)
    got: dict[int, Tensor | None] = field(default_factory=dict)


class _Watcher(Keeper):
    """A forward that keeps which function made each tensor, and where in the autograd graph the tensors stood."""

    def __init__(self, model: nn.Module, dtype: torch.dtype | None) -> None:
        super().__init__(model, dtype)
        self.made: dict[Any, dict[int, tuple[int, Tensor]]] = {}       # function node -> number of the output -> version, tensor
        self.edge: dict[int, tuple[Any, int, Tensor]] = {}              # version -> its function node (None: a leaf), output number, tensor

    def hook(self, n: int, t: Tensor) -> None:
        """No gradients of tensors are asked for: every function is looked at alone."""

    def version(self, t: Tensor) -> int:
        n = super().version(t)
        if t.requires_grad:
            maker = t.grad_fn
            self.edge.setdefault(n, (maker, t.output_nr, t))
            if isinstance(maker, BackwardCFunction):
                self.made.setdefault(maker, {})[t.output_nr] = (n, t)
        return n


def applications(facts: Facts) -> tuple[Record, dict[int, Tensor], list[Application]]:
    """Every use of a custom function in a forward in training mode, last ones first, with its record and values.

    Inputs are made to require gradients where the model allows it, so that the first block is judged as well.
    """
    try:
        return _watched(facts, True)
    except TraceError:                                  # an input that is written to must not require gradients
        return _watched(facts, False)


def _watched(facts: Facts, inputs: bool) -> tuple[Record, dict[int, Tensor], list[Application]]:
    runs = facts.runs
    assert runs is not None
    watcher = _Watcher(runs.model, runs.dtype)
    found: list[Application] = []
    kept = [(p, p.grad) for p in runs.model.parameters()]

    def finish(record: Record, returned: list[Tensor]) -> None:
        for p, _ in kept:
            p.grad = None
        for maker in sorted(watcher.made, key=lambda m: -m._sequence_nr()):
            made = _application(watcher, maker)
            if made is not None:
                found.append(made)

    args, kwargs = (_requiring(runs.args), _requiring(runs.kwargs)) if inputs else (runs.args, runs.kwargs)
    try:
        with seeded(None):
            record = record_values(watcher, args, kwargs, How(dtype=runs.dtype, training=True, grad=True), finish)
    finally:
        for p, grad in kept:
            p.grad = grad
    return record, watcher.values, found


def _requiring(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {k: _requiring(v) for k, v in value.items()}
    return type(value)([_requiring(v) for v in value]) if isinstance(value, (list, tuple)) and not hasattr(value, "_fields") else value


def _application(watcher: _Watcher, maker: Any) -> Application | None:
    """The nodes of one use, and what its backward gives; None where it cannot be run on its own."""
    outs = [n for _, (n, _) in sorted(watcher.made[maker].items())]
    region, ins = _region(watcher, outs)
    tensors = [t for _, (_, t) in sorted(watcher.made[maker].items())]
    # A tensor may have been written to since, and then has another maker.
    roots = [GradientEdge(maker, number) for number in sorted(watcher.made[maker])]
    generator = torch.Generator().manual_seed(len(region))
    given = [torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.device, t.dtype) for t in tensors]
    edges = [GradientEdge(node, number) for node, number in maker.next_functions if node is not None]
    if not edges or not all(t.is_floating_point() for t in tensors):
        return None
    nearest = max(edges, key=lambda e: e.node._sequence_nr())       # nothing but this function lies between it and the outputs
    seen: list[tuple[Tensor | None, ...]] = []
    handle = maker.register_hook(lambda grads, _: seen.append(grads))
    try:
        torch.autograd.grad(roots, [nearest], given, retain_graph=True, allow_unused=True)
    except Exception:                                               # any code of the user's: a backward that only runs within the whole one
        return None
    finally:
        handle.remove()
    if len(seen) != 1 or len(seen[0]) != len(maker.next_functions):
        return None
    got: dict[int, Tensor | None] = {}
    for (node, number), grad in zip(maker.next_functions, seen[0], strict=True):
        n = next((i for i in ins if _stands(watcher, i, node, number)), None)
        if n is not None:
            before = got.get(n)
            got[n] = before if grad is None else grad.detach() if before is None else before + grad.detach()
    return Application(maker._forward_cls, tuple(ins), tuple(outs), frozenset(region), dict(zip(outs, (g.detach() for g in given), strict=True)), got)


def _stands(watcher: _Watcher, n: int, node: Any, number: int) -> bool:
    """Whether version `n` is the tensor behind an edge of the autograd graph."""
    if node is None or n not in watcher.edge:
        return False
    maker, own, tensor = watcher.edge[n]
    return getattr(node, "variable", None) is tensor if maker is None else maker == node and own == number


def _region(watcher: _Watcher, outs: list[int]) -> tuple[list[int], list[int]]:
    """What was made inside the function on the way to its outputs, and what it read from outside."""
    region, ins, stack = set(outs), set[int](), list(outs)
    while stack:
        for i in watcher.nodes[stack.pop()].ins:
            if i in region or i in ins:
                continue
            if i in watcher.untracked and not isinstance(watcher.edge.get(i, (None,))[0], BackwardCFunction):
                region.add(i)
                stack.append(i)
            else:
                ins.add(i)
    return sorted(region), sorted(ins)


