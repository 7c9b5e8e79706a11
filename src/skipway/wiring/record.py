"""Step 1: one forward under a dispatch mode becomes a list of operations.

Every operation is a `Node`: its inputs are node numbers, so each is one *version* of a tensor. An in-place write makes a new
version of what it writes and of everything that shares its storage. Module calls are recorded beside the operations.

Nothing is computed by default: inputs are moved to the meta device, stored tensors are read through meta twins, and small
tables that the forward makes on the CPU stay real. Where the forward asks for a value (`.item()`, a mask that is tested), the
recorder works out just that value from tables and inputs; where the value depends on weights it raises `NeedsDataError`.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from skipway._errors import NeedsDataError
from skipway.wiring.meta import made
from skipway.wiring.naming import TORCH_HOME, attribute_path, source_line
from skipway.wiring.storage import dense, overlap

LEAVES = frozenset({"input", "param", "buffer", "const"})


@dataclass(slots=True, eq=False)
class Node:
    """One operation's output, or a leaf. `op` is the operation's name without namespace, overload and trailing underscore."""

    id: int
    op: str
    ins: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    call: int                                   # number of the module call it ran in
    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    out: int = 0                                # which of the operation's outputs
    group: int = -1                             # tensors that share storage share a group
    write: bool = False                         # an in-place write: `ins[0]` is the version it replaced
    where: tuple[str, int] | None = None        # source line, for operations that can join or that write
    name: str = ""                              # path of a stored tensor, name of an input
    overload: Any = None


@dataclass(slots=True, eq=False)
class Call:
    """One call of a module. Node ranges are half open; `ins` and `outs` pair tensor identities with node numbers."""

    id: int
    path: str
    module: nn.Module
    parent: int
    number: int                                 # how many calls of this module came before
    first: int
    where: tuple[str, int] | None
    registered: bool
    ins: tuple[tuple[int, int], ...] = ()
    last: int = -1
    outs: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True, eq=False)
class Record:
    """What one forward did. `outputs` are node numbers of the floating tensors it returned, the principal one first."""

    nodes: list[Node]
    calls: list[Call]
    outputs: tuple[int, ...]
    returned: frozenset[int]                    # identities of all tensors it returned
    how: str
    model: nn.Module
    tensors: list[Tensor]                       # keeps identities unique while the record lives
    training: bool = False
    notes: list[str] = field(default_factory=list)


OVERWRITES = frozenset(["copy", "fill", "zero", "bernoulli", "normal", "uniform", "exponential", "random"])


class _Info:
    """What the schema of an operator says, read once."""

    __slots__ = ("in_place", "joins", "name", "views", "writes")

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self.name = schema.name.rpartition("::")[2].rstrip("_") or schema.name
        self.writes = tuple(i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write)
        self.views = any(r.alias_info is not None for r in schema.returns)
        self.in_place = any(r.alias_info is not None and r.alias_info.is_write for r in schema.returns)
        self.joins = self.name in JOINING


JOINING = frozenset(["add", "sub", "rsub", "addcmul", "addcdiv", "lerp", "addmm", "baddbmm", "addbmm", "addmv", "addr", "mul", "stack", "bmm"]) | {
    "index_add", "scatter_add", "index_put", "_unsafe_index_put", "_foreach_add", "_foreach_addcmul", "_foreach_lerp", "_foreach_sub"}


class Recorder(TorchDispatchMode):
    """Records operations; `call` is what `nn.Module.__call__` becomes while it is active."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False                            # compiled parts run eagerly anyway; the wrapper would cost time at every operation

    def __init__(self, model: nn.Module, abstract: bool, dtype: torch.dtype | None = None, alike: dict[int, int] | None = None) -> None:
        super().__init__()
        self.abstract = abstract
        self.dtype = dtype                      # floating stored tensors and inputs are read in this type
        self.alike = alike or {}                # modules that hand on what another one made, instead of running
        self.made: dict[int, Any] = {}
        self.nodes: list[Node] = []
        self.calls: list[Call] = [Call(0, "", model, -1, 0, 0, None, True)]
        self.stack: list[int] = []
        self.current: dict[int, int] = {}       # tensor identity -> its newest version
        self.tensors: list[Tensor] = []
        self.writes: dict[int, list[tuple[int, Tensor]]] = {}
        self.twins: dict[int, Tensor] = {}
        self.values: dict[int, Any] = {}        # node -> concrete value, where one is known
        self.saved: dict[int, tuple[Any, Any]] = {}      # storage address -> storage, its content before the first write
        self.infos: dict[Any, _Info] = {}
        self.paths = {id(m): p for p, m in model.named_modules()}
        self.counts: dict[int, int] = {}
        self.adopted: set[int] = set()          # modules that run without being registered
        self.outside = 0                        # identity of the frame that entered the mode: beyond it nothing belongs to the run
        self.stored: dict[int, tuple[str, str]] = {}
        for name, p in model.named_parameters(remove_duplicate=False):
            self.stored.setdefault(id(p), ("param", name))
        for name, b in model.named_buffers(remove_duplicate=False):
            self.stored.setdefault(id(b), ("buffer", name))

    def __enter__(self) -> Self:
        self.outside = id(sys._getframe(1))
        super().__enter__()
        return self

    # tensors and their versions

    def leaf(self, t: Tensor, op: str | None = None, name: str = "") -> int:
        """The node of a tensor that no recorded operation made."""
        if op is None:
            op, name = self.stored.get(id(t), ("const", ""))
        n = len(self.nodes)
        self.nodes.append(Node(n, op, (), tuple(t.shape), t.dtype, self.stack[-1] if self.stack else 0, group=n, name=name))
        self.current[id(t)] = n
        self.tensors.append(t)
        return n

    def version(self, t: Tensor) -> int:
        """The newest version of a tensor, after all writes to its storage."""
        n = self.current.get(id(t))
        if n is None:
            return self.leaf(t)
        if self.writes:
            seen = n                                                # patches are newer nodes than writes that are still to come
            for w, written in self.writes.get(self.nodes[n].group, ()):
                if w > seen and written is not t and overlap(written, t):
                    n = self._patched(n, w, written, t)
            self.current[id(t)] = n
        return n

    def _patched(self, n: int, w: int, written: Tensor, t: Tensor) -> int:
        old = self.nodes[n]
        whole = dense(written) and dense(t) and written.numel() == t.numel() and written.storage_offset() == t.storage_offset()
        m = len(self.nodes)
        ins = (w,) if whole else (n, w)
        self.nodes.append(Node(m, "reread" if whole else "patch", ins, old.shape, old.dtype, self.nodes[w].call, group=old.group))
        return m

    # operations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        info = self.infos.get(func)
        if info is None:
            info = self.infos[func] = _Info(func)
        found: list[Tensor] = []
        for a in args:
            if isinstance(a, Tensor):
                found.append(a)
            elif isinstance(a, (list, tuple)):
                found.extend([b for b in a if isinstance(b, Tensor)])
        for a in kwargs.values():
            if isinstance(a, Tensor):
                found.append(a)
        ins = tuple([self.version(t) for t in found])
        run_args, run_kwargs = args, kwargs
        if info.writes or info.name == "native_batch_norm":
            self._save(args, kwargs, info)
        if self.abstract and found:
            meta = [t.is_meta for t in found]
            stored = self.dtype is not None or info.writes
            if (not all(meta) and any(meta)) or (stored and any(id(t) in self.stored for t in found)):
                run_args, run_kwargs = self._twinned(args), {k: self._twinned((v,))[0] for k, v in kwargs.items()}
        try:
            plain = self.abstract and found and not info.writes and not info.views
            out = made(func, run_args, run_kwargs) if plain else func(*run_args, **run_kwargs)
        except (RuntimeError, NotImplementedError) as error:
            if not (self.abstract and any(t.is_meta for t in found)):
                raise
            out = self._concrete(func, info, args, kwargs, ins, error)
        return self._record(func, info, args, kwargs, ins, out)

    def _record(self, func: Any, info: _Info, args: Any, kwargs: Any, ins: tuple[int, ...], out: Any) -> Any:
        where = None
        if (info.joins and len(ins) > 1) or info.writes:
            where = source_line(self.outside)
        call = self.stack[-1] if self.stack else 0
        if info.writes:
            written = [self._argument(args, kwargs, i, func) for i in info.writes]
            flat = [t for w in written for t in (w if isinstance(w, (list, tuple)) else (w,)) if isinstance(t, Tensor)]
            for k, t in enumerate(flat):
                n = len(self.nodes)
                before = self.current[id(t)]
                op, inputs = info.name, ins
                if not info.in_place and out is not None:               # running statistics, beside the real outputs
                    op, inputs = "statistics", (before,)
                elif op.startswith("_foreach"):
                    op, inputs = op[9:], _foreach_ins(args, self.current, k)
                elif op in OVERWRITES:
                    inputs = inputs[1:2]
                elif inputs[0] != before:                               # out= variants: what was in `out` does not matter
                    inputs = tuple([i for i in inputs if i != before])
                node = Node(n, op, inputs, tuple(t.shape), t.dtype, call, args, kwargs, k, self.nodes[before].group, True, where, "", func)
                self.nodes.append(node)
                self.current[id(t)] = n
                self.writes.setdefault(node.group, []).append((n, t))
            if info.in_place or out is None:
                return written[0] if isinstance(out, Tensor) else out
        for k, t in enumerate(out if isinstance(out, (list, tuple)) else (out,)):
            if not isinstance(t, Tensor) or id(t) in self.current:
                continue
            n = len(self.nodes)
            op, inputs = info.name, ins
            if op.startswith("_foreach"):
                op, inputs = op[9:], _foreach_ins(args, self.current, k)
            group = self.nodes[ins[0]].group if info.views and ins else n
            self.nodes.append(Node(n, op, inputs, tuple(t.shape), t.dtype, call, args, kwargs, k, group, False, where, "", func))
            self.current[id(t)] = n
            self.tensors.append(t)
        return out

    @staticmethod
    def _argument(args: Any, kwargs: Any, index: int, func: Any) -> Any:
        return args[index] if index < len(args) else kwargs.get(func._schema.arguments[index].name)

    # running without numbers

    def _twinned(self, args: Any) -> Any:
        """Arguments with each real tensor replaced by a meta tensor of its shape."""
        def twin(a: Any) -> Any:
            if isinstance(a, Tensor):
                cast = self.dtype is not None and a.is_floating_point() and id(a) in self.stored
                if a.is_meta and not cast:
                    return a
                t = self.twins.get(id(a))
                if t is None:
                    kind = self.dtype if cast else a.dtype
                    t = self.twins[id(a)] = torch.empty_strided(a.shape, a.stride(), dtype=kind, device="meta")
                    self.tensors.append(a)
                return t
            if isinstance(a, (list, tuple)):
                return [twin(b) for b in a] if any(isinstance(b, Tensor) for b in a) else a
            return torch.device("meta") if isinstance(a, torch.device) else a
        return tuple([twin(a) for a in args])

    def _concrete(self, func: Any, info: _Info, args: Any, kwargs: Any, ins: tuple[int, ...], error: Exception) -> Any:
        """Work out an operation that needs values. Tensors come back on the meta device, their values are kept."""
        try:
            values = [self._value(i) for i in ins]
        except LookupError:
            raise NeedsDataError(f"{info.name} needs values that depend on weights ({error})") from error
        out = func(*_replaced(args, iter(values)), **{**kwargs, **({"device": torch.device("cpu")} if kwargs.get("device") else {})})
        if not isinstance(out, Tensor):
            return out
        made = torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device="meta")
        self.values[len(self.nodes)] = out                          # the node that `_record` makes next
        return made

    def _value(self, n: int) -> Tensor:
        """The concrete value of a node that depends on tables and inputs alone. Raises LookupError otherwise."""
        pending = [n]
        while pending:
            m = pending[-1]
            node = self.nodes[m]
            missing = [i for i in node.ins if i not in self.values]
            if m in self.values:
                pending.pop()
            elif node.op in LEAVES or node.op in ("patch", "reread") or node.overload is None or (node.write and node.op != "copy"):
                raise LookupError(m)
            elif missing:
                pending.extend(missing)
            else:
                kwargs = {k: (torch.device("cpu") if k == "device" and v is not None else v) for k, v in node.kwargs.items()}
                if any(isinstance(v, Tensor) for v in kwargs.values()):
                    raise LookupError(m)
                made = node.overload(*_replaced(node.args, iter([self.values[i] for i in node.ins])), **kwargs)
                self.values[m] = made[node.out] if isinstance(made, (tuple, list)) else made
                pending.pop()
        return self.values[n]

    def _save(self, args: Any, kwargs: Any, info: _Info) -> None:
        """Keep a copy of what the forward did not make before it writes to it: by storage, as it may write through a view."""
        for i in info.writes or (3, 4):                             # the schema of native_batch_norm does not tell that it writes
            written = args[i] if i < len(args) else None
            for t in written if isinstance(written, (list, tuple)) else (written, *kwargs.values()):
                if isinstance(t, Tensor) and not t.is_meta and self.nodes[self.nodes[self.current[id(t)]].group].op in ("param", "buffer", "const"):
                    storage = t.untyped_storage()
                    self.saved.setdefault(storage.data_ptr(), (storage, storage.clone()))

    # module calls

    def call(self, original: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        """Run one module call and record it."""
        twin = self.alike.get(id(module))
        if twin in self.made:
            return self.made[twin]
        path = self.paths.get(id(module))
        if path is None:
            path = self._adopt(module)
        registered = id(module) not in self.adopted
        number = self.counts.get(id(module), 0)
        self.counts[id(module)] = number + 1
        frame = sys._getframe(2)
        where = None if frame.f_code.co_filename.startswith(TORCH_HOME) else (frame.f_code.co_filename, frame.f_lineno)
        parent = self.stack[-1] if self.stack else 0
        if not self.stack and module is self.calls[0].module:
            record = self.calls[0]
        else:
            record = Call(len(self.calls), path, module, parent, number, len(self.nodes), where, registered)
            self.calls.append(record)
        record.ins = self._seen((*args, *kwargs.values()))
        self.stack.append(record.id)
        try:
            out = original(module, *args, **kwargs)
        finally:
            self.stack.pop()
            record.last = len(self.nodes)
        record.outs = self._seen((out,))
        if self.alike:
            self.made[id(module)] = out
        return out

    def _seen(self, values: Any) -> tuple[tuple[int, int], ...]:
        return tuple([(id(t), self.current[id(t)]) for t in tensors_in(values, depth=3) if id(t) in self.current])

    def _adopt(self, module: nn.Module) -> str:
        """Name a module that was not registered when the forward began: by its place now, or by the attribute that holds it."""
        for path, m in self.calls[0].module.named_modules():
            if m is module:                                         # made, and registered, by the forward itself
                self.paths.update({id(x): f"{path}.{p}" if p else path for p, x in module.named_modules()})
                return path
        caller = self.calls[self.stack[-1]] if self.stack else self.calls[0]
        owners = [caller] + [self.calls[i] for i in reversed(self.stack)]
        name = next((n for o in owners for n in [attribute_path(o.module, module, o.path)] if n), None)
        path = name if name is not None else (f"{caller.path}.<{type(module).__name__}>" if caller.path else f"<{type(module).__name__}>")
        for sub, m in module.named_modules():
            self.paths.setdefault(id(m), f"{path}.{sub}" if sub else path)
            self.adopted.add(id(m))
        for sub, p in module.named_parameters():
            self.stored.setdefault(id(p), ("param", f"{path}.{sub}"))
            self.current.pop(id(p), None)                           # filled under the recorder: from here on it is a weight all the same
        for sub, b in module.named_buffers():
            self.stored.setdefault(id(b), ("buffer", f"{path}.{sub}"))
        return path


def tensors_in(value: Any, depth: int = 6) -> Iterator[Tensor]:
    """Tensors inside nested tuples, lists, mappings and plain objects, in order."""
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, (list, tuple)):
        for v in value:
            yield from tensors_in(v, depth - 1)
    elif depth and isinstance(value, dict):
        for v in value.values():
            yield from tensors_in(v, depth - 1)
    elif depth and hasattr(value, "__dict__") and not isinstance(value, (nn.Module, type)) and not callable(value):
        for v in vars(value).values():
            yield from tensors_in(v, depth - 1)


def _foreach_ins(args: Any, current: dict[int, int], k: int) -> tuple[int, ...]:
    return tuple(current[id(a[k])] for a in args if isinstance(a, (list, tuple)) and isinstance(a[k], Tensor))


def _replaced(args: Any, values: Iterator[Any]) -> tuple[Any, ...]:
    """Arguments with their tensors replaced, in order, by `values`."""
    def put(a: Any) -> Any:
        if isinstance(a, Tensor):
            return next(values)
        return [put(b) for b in a] if isinstance(a, (list, tuple)) and any(isinstance(b, Tensor) for b in a) else a
    return tuple([put(a) for a in args])
