"""Works nodes of a recorded run out anew from other values: the graph as a function.

Every operation is called by its own overload on the recorded arguments, so equal values give equal bits; called with gradients on,
the result can be differentiated, whatever backward the model's own code has. Writes are made on copies and random numbers are those
of the run.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from skipway.wiring import operations as ops
from skipway.wiring.record import LEAVES, OVERWRITES, Node, Record

_RESHAPES = frozenset(["view", "_unsafe_view", "_reshape_alias"])
_BATCH_NORMS = frozenset(["native_batch_norm", "_batch_norm_with_update", "cudnn_batch_norm", "_native_batch_norm_legit"])


def evaluate(
    record: Record, values: Mapping[int, Tensor], targets: Iterable[int], given: Mapping[int, Tensor], pinned: Iterable[int] = (),
) -> dict[int, Tensor]:
    """Values of the target nodes where the nodes `given` have other values; nodes in `pinned` keep what they held.

    A target that does not depend on a given node keeps its recorded value.
    """
    goals = set(targets)
    new: dict[int, Tensor] = dict(given)
    fixed = set(pinned) - set(given)
    wanted = _between(record, goals, set(given), fixed)
    shared: dict[Any, Any] = {}
    for n in wanted:
        if n not in new:
            new[n] = _compute(record, record.nodes[n], values, new, shared)
    return {n: new[n] if n in new else values[n] for n in goals}


def _between(record: Record, goals: set[int], given: set[int], fixed: set[int]) -> list[int]:
    """Nodes that depend on a given node and that a goal depends on, in order."""
    if not goals or not given:
        return []
    first, last = min(given), max(goals)
    changed = set(given)
    for node in record.nodes[first + 1: last + 1]:
        if node.id not in changed and node.id not in fixed and not _still(node) and any(i in changed for i in node.ins):
            changed.add(node.id)
    needed: set[int] = set()
    stack = [n for n in goals if n in changed]
    while stack:
        n = stack.pop()
        if n not in needed:
            needed.add(n)
            if n not in given:
                stack.extend(i for i in record.nodes[n].ins if i in changed)
    return sorted(needed)


def depends(record: Record, target: int, given: int, pinned: Iterable[int] = ()) -> bool:
    """Whether a change of `given` reaches `target` other than through a pinned node."""
    return bool(_between(record, {target}, {given}, set(pinned)))


def _still(node: Node) -> bool:
    """Numbers that are drawn stay as they were drawn, and running statistics as they were found."""
    return (node.op in ops.RANDOM and node.op != "native_dropout") or node.op == "statistics" or (node.op == "native_dropout" and node.out == 1)


def _compute(record: Record, node: Node, values: Mapping[int, Tensor], new: Mapping[int, Tensor], shared: dict[Any, Any]) -> Tensor:
    ins = [new[i] if i in new else values[i] for i in node.ins]
    if node.op in ("reread", "patch") and node.overload is None:
        return _reread(node, ins)
    if node.op == "native_dropout":
        mask = values[node.id + 1]
        return ins[0].mul(mask).mul(1.0 / (1.0 - node.args[1]) if node.args[1] < 1 else 0.0)
    if node.write:
        return _written(record, node, ins, values[node.id])
    if node.op in _RESHAPES and len(node.args) > 1 and isinstance(node.args[1], (list, tuple)):
        return ins[0].reshape(node.args[1])             # other values may lie in memory in another order
    key = (id(node.args), id(node.kwargs), node.overload, node.ins)
    if key not in shared:
        if node.overload is not None and node.overload._schema.name.startswith("aten::_foreach"):
            shared[key] = _foreach(node, ins)
        else:
            shared[key] = node.overload(*_replaced(node, ins)[0], **_replaced(node, ins)[1])
    made = shared[key]
    if isinstance(made, (tuple, list)):
        made = made[0 if node.overload._schema.name.startswith("aten::_foreach") else node.out]
    return made.clone() if any(made is t for t in ins) else made


def _written(record: Record, node: Node, ins: list[Tensor], held: Tensor) -> Tensor:
    """A write as a value: what the tensor holds afterwards."""
    func = node.overload
    if func._schema.name.startswith("aten::_foreach"):
        return _foreach(node, [ins[0].clone(), *ins[1:]])[0]
    if node.op in OVERWRITES:                           # copy_: what was there before does not matter
        return ins[0].to(held.dtype).expand(held.shape).clone(memory_format=torch.contiguous_format)
    returns = func._schema.returns
    in_place = any(r.alias_info is not None and r.alias_info.is_write for r in returns) and not any(a.is_out for a in func._schema.arguments)
    if in_place:
        args, kwargs = _replaced(node, [ins[0].clone(), *ins[1:]])
        return func(*args, **kwargs)
    outs = [a.name for a in func._schema.arguments if a.is_out]
    if not outs:                                        # a custom operation that writes to an argument and returns something else
        copies = [i.clone() for i in ins]
        args, kwargs = _replaced(node, copies)
        func(*args, **kwargs)
        return copies[0]
    kwargs = {k: v for k, v in node.kwargs.items() if k not in outs}
    rest = iter(ins)
    plain = tuple([_put(a, rest) for a in node.args])
    made = func.overloadpacket(*plain, **{k: _put(v, rest) for k, v in kwargs.items()})
    return made[node.out] if isinstance(made, (tuple, list)) else made


def _foreach(node: Node, ins: list[Tensor]) -> Any:
    """One element of an operation on lists, worked out alone; results in a list."""
    position = node.out
    rest = iter(ins)
    args = [[next(rest)] if isinstance(a, (list, tuple)) and a and isinstance(a[0], Tensor)
            else [a[position]] if isinstance(a, (list, tuple)) else a for a in node.args]
    made = node.overload(*args, **node.kwargs)
    return list(made) if made is not None else args[0]


def _replaced(node: Node, ins: list[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The recorded arguments with their tensors replaced, in order."""
    rest = iter(ins)
    args = [_put(a, rest) for a in node.args]
    kwargs = {k: next(rest) if isinstance(v, Tensor) else v for k, v in node.kwargs.items()}
    if node.op in _BATCH_NORMS:                         # these write to their running statistics
        args = [a.clone() if i in (3, 4) and isinstance(a, Tensor) else a for i, a in enumerate(args)]
    return tuple(args), kwargs


def _put(value: Any, rest: Any) -> Any:
    if isinstance(value, Tensor):
        return next(rest)
    return [_put(v, rest) for v in value] if isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value) else value


def _reread(node: Node, ins: list[Tensor]) -> Tensor:
    """A tensor after a write through another one that shares its storage."""
    written, own = node.args
    size = max(_extent(written), _extent(own))
    buffer = torch.zeros(size, dtype=ins[-1].dtype, device=ins[-1].device)
    if node.op == "patch":
        buffer = buffer.as_strided_scatter(ins[0], *own)
    buffer = buffer.as_strided_scatter(ins[-1], *written)
    return buffer.as_strided(*own).clone()


def _extent(geometry: Any) -> int:
    shape, stride, offset = geometry
    return int(offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)))


__all__ = ["LEAVES", "depends", "evaluate"]
