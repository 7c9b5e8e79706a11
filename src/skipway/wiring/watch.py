"""A real forward in which a few operations are met and the rest runs as it would: for measurements and for changing a join.

A `Meeting` says at which address what is done. Nothing is kept of the other operations, so memory stays that of the plain forward.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from skipway._errors import SkipwayError, TraceError
from skipway.wiring.address import Address
from skipway.wiring.forward import failed, watching
from skipway.wiring.record import tensors_in

# What is done at an operation: it is given (function, arguments, keyword arguments) and returns the operation's result.
Meeting = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class Watch(TorchDispatchMode):
    """Counts operations as `addresses` does and hands those that are wanted to their meetings."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __init__(self, model: nn.Module, wanted: dict[Address, Meeting]) -> None:
        super().__init__()
        self.abstract = False
        self.saved: dict[int, tuple[Any, Any]] = {}
        self.paths = {id(m): p for p, m in model.named_modules()}
        self.model = model
        self.ops = {(a.path, a.number, a.op) for a in wanted}
        self.places = {(a.path, a.number) for a in wanted}
        self.wanted = dict(wanted)
        self.met: set[Address] = set()
        self.numbers: dict[int, int] = {}
        self.stack: list[tuple[str, int]] = []
        self.counts: list[dict[tuple[str, tuple[int, ...]], int]] = []
        self.names: dict[Any, str] = {}
        self.writing: dict[Any, bool] = {}
        self.stored = {p.untyped_storage().data_ptr() for p in model.parameters() if not p.is_meta}
        self.pending: list[tuple[Tensor, Callable[[Tensor], None]]] = []

    def call(self, original: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        """Run one module call, counting the operations of its own forward apart."""
        path = self.paths.get(id(module))
        number = self.numbers.get(id(module), -1) + 1
        self.numbers[id(module)] = number
        outer = not self.stack and module is self.model
        self.stack.append(("" if outer else path if path is not None else "?", number))
        self.counts.append({})
        try:
            return original(module, *args, **kwargs)
        finally:
            self.stack.pop()
            self.counts.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.pending:
            self.settle()
        writes = self.writing.get(func)
        if writes is None:
            writes = self.writing[func] = func._schema.is_mutable
        if writes:
            self._save(args)
        place = self.stack[-1] if self.stack else ("", 0)
        if place not in self.places:
            return func(*args, **kwargs)
        name = self.names.get(func)
        if name is None:
            full = func._schema.name.rpartition("::")[2]
            name = self.names[func] = (full.rstrip("_") or full).removeprefix("_foreach_")
        if (*place, name) not in self.ops:
            return func(*args, **kwargs)
        shape = self._shape(func, args, kwargs)
        if shape is None:                               # known only once it has run, and then it is too late to change it
            out = func(*args, **kwargs)
            self._count(place, name, tuple(out.shape) if isinstance(out, Tensor) else next((tuple(t.shape) for t in tensors_in(out)), ()))
            return out
        address = Address(*place, name, shape, self._count(place, name, shape))
        meeting = self.wanted.get(address)
        if meeting is None:
            return func(*args, **kwargs)
        self.met.add(address)
        return meeting(func, args, kwargs)

    def _save(self, args: Any) -> None:
        """Keep a copy of a parameter before the forward writes to it; buffers are kept anyway."""
        for t in tensors_in(args, depth=2):
            storage = t.untyped_storage()
            if storage.data_ptr() in self.stored and storage.data_ptr() not in self.saved:
                self.saved[storage.data_ptr()] = storage, storage.clone()

    def _count(self, place: tuple[str, int], name: str, shape: tuple[int, ...]) -> int:
        counts = self.counts[-1] if self.counts else {}
        key = (name, shape)
        counts[key] = counts.get(key, -1) + 1
        return counts[key]

    def _shape(self, func: Any, args: Any, kwargs: Any) -> tuple[int, ...] | None:
        """The output's shape before the operation runs: by broadcasting where it is elementwise, else on the meta device."""
        tensors = list(tensors_in((args, kwargs), depth=2))
        shapes = {tuple(t.shape) for t in tensors}
        if len(shapes) == 1 and func._schema.name.rpartition("::")[2].rstrip("_") in _ELEMENTWISE:
            return shapes.pop()
        if func._schema.name.rpartition("::")[2].rstrip("_") in _ELEMENTWISE:
            return tuple(torch.broadcast_shapes(*shapes))
        try:
            out = func(*_meta(args), **{k: _meta((v,))[0] for k, v in kwargs.items()})
        except (RuntimeError, NotImplementedError):
            return None
        return next((tuple(t.shape) for t in tensors_in(out)), None)

    def later(self, t: Tensor, then: Callable[[Tensor], None]) -> None:
        """Call `then(t)` as soon as autograd knows how `t` was made."""
        self.pending.append((t, then))

    def settle(self) -> None:
        """Do what waited for the operation before to be over."""
        pending, self.pending = self.pending, []
        for t, then in pending:
            then(t)

    def missed(self) -> list[Address]:
        """Addresses that no operation had."""
        return [a for a in self.wanted if a not in self.met]


_ELEMENTWISE = frozenset(["add", "sub", "rsub", "addcmul", "addcdiv", "lerp", "mul", "div", "where", "maximum"])


def _meta(args: Any) -> Any:
    def twin(a: Any) -> Any:
        if isinstance(a, Tensor):
            return torch.empty_strided(a.shape, a.stride(), dtype=a.dtype, device="meta")
        if isinstance(a, (list, tuple)):
            return [twin(b) for b in a]
        return torch.device("meta") if isinstance(a, torch.device) else a
    return tuple([twin(a) for a in args])


def watch(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], wanted: dict[Address, Meeting], *, grad: bool = False,
    finish: Callable[[Any, Watch], None] | None = None, make: Callable[[nn.Module, dict[Address, Meeting]], Watch] = Watch,
) -> Watch:
    """One real forward with meetings; `finish(output, watch)` runs before the model is put back as it was found.

    Raises TraceError where the forward fails.
    """
    mode = make(model, wanted)
    with watching(model, mode, args, kwargs, grad) as (given, named):
        try:
            with mode:
                out = model(*given, **named)
        except SkipwayError:
            raise
        except Exception as error:
            raise failed(model, error) from error
        mode.settle()
        if finish is not None:
            finish(out, mode)
    return mode


def unmet(mode: Watch) -> TraceError:
    """The error for a forward that did not perform what its wiring says."""
    first = mode.missed()[0]
    where = f"`{first.path}`" if first.path else "the model itself"
    return TraceError(f"watch: {where} did not perform its {first.op} number {first.ordinal + 1} of shape {first.shape} in call {first.number + 1}; "
                      "the forward took another path than when it was traced: trace it with these inputs and in this mode")
