"""Runs the forward that `record` watches, and leaves the model as it was.

Fused and wrapped parts are opened for the time of the run: the encoder fast path is off, compiled parts run eagerly. Attributes,
buffers, parameters and random state are put back, also after an exception.
"""

import collections
import contextlib
import random
import re
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from skipway._errors import NeedsDataError, SkipwayError, TraceError, UsageError
from skipway.wiring.record import Record, Recorder, tensors_in


@dataclass(frozen=True)
class How:
    """Options of one run: a method instead of forward, another dtype, another mode, modules that need not run again, gradients, and what else
    watches: `around(recorder)` is entered with the recorder."""

    method: str | None = None
    dtype: torch.dtype | None = None
    training: bool | None = None
    alike: dict[int, int] = field(default_factory=dict)
    grad: bool = False
    around: "Callable[[Recorder], contextlib.AbstractContextManager[Any]] | None" = None


def record(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], how: How) -> Record:
    """One forward as a `Record`; without numbers where the model allows, else a real one.

    Raises TraceError where the forward fails, NeedsDataError where it needs values and the model holds none.
    """
    _callable(model, args, kwargs)
    try:
        return _run(model, args, kwargs, True, how)
    except Exception as error:
        on_meta = next((n for n, p in (*model.named_parameters(), *model.named_buffers()) if p.is_meta), None)
        if on_meta is not None or any(t.is_meta for t in tensors_in((args, kwargs))):
            if isinstance(error, NeedsDataError):
                raise NeedsDataError(f"{type(model).__name__}.forward: {error}; pass a small model with real weights and real inputs") from error
            raise failed(model, error) from error
        reason = str(error).split("\n")[0]
    try:
        found = _run(model, args, kwargs, False, how)
    except Exception as error:
        raise failed(model, error) from error
    found.notes.append(f"the forward needs data ({reason[:120]}): recorded from a real run")
    return found


def record_values(
    recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any], how: How, finish: Callable[[Record, list[Tensor]], None],
) -> Record:
    """One real forward, watched by `recorder`. `finish` is called with the record and the returned tensors before the model is put back.

    Raises NeedsDataError where a weight or an input holds no numbers, TraceError where the forward fails.
    """
    model = recorder.calls[0].module
    _callable(model, args, kwargs)
    held = (*model.named_parameters(), *model.named_buffers())
    empty = next((n for n, p in held if p.is_meta), None)
    if empty is not None or any(t.is_meta for t in tensors_in((args, kwargs))):
        what = f"{empty!r} is on the meta device" if empty is not None else "an input is on the meta device"
        raise NeedsDataError(f"{type(model).__name__}: {what} and holds no numbers; pass a model with real weights and real inputs")
    try:
        return _watched(recorder, args, kwargs, how, finish)
    except SkipwayError:
        raise
    except Exception as error:
        raise failed(model, error) from error


def _callable(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if not isinstance(model, nn.Module):
        raise UsageError(f"trace: got {type(model).__name__}, want a torch.nn.Module; pass the model first, then its inputs")
    if not any(True for _ in tensors_in((args, kwargs))):
        given = ", ".join([type(a).__name__ for a in args] + [f"{k}: {type(v).__name__}" for k, v in kwargs.items()]) or "nothing"
        raise UsageError(f"trace: got {given} as inputs, want at least one tensor; call it as you would call the model")


def failed(model: nn.Module, error: Exception) -> TraceError:
    place = error.__traceback__
    where = ""
    while place is not None:
        code = place.tb_frame.f_code
        if not code.co_filename.startswith((torch.__path__[0], __file__)) and "skipway/wiring" not in code.co_filename:
            where = f" at {code.co_filename}:{place.tb_lineno}"
        place = place.tb_next
    text = " ".join(str(error).split())[:300]
    return TraceError(f"{type(model).__name__}.forward failed{where}: {type(error).__name__}: {text}; {_advice(error, text)}")


def _advice(error: Exception, text: str) -> str:
    """What to do about an error of the forward."""
    lacking = re.search(r"not implemented for '(Half|BFloat16)'", text)
    if lacking:
        return f"this device computes that in no {'float16' if lacking[1] == 'Half' else 'bfloat16'}: run the model in float32"
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "allocate memory" in text:
        return "there is not enough memory for these inputs: give fewer rows or shorter ones"
    return "check that these inputs fit the model"


def _run(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], abstract: bool, how: How) -> Record:
    return _watched(Recorder(model, abstract, how.dtype, how.alike), args, kwargs, how)


def _watched(
    recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any], how: How, finish: Callable[[Record, list[Tensor]], None] | None = None,
) -> Record:
    model = recorder.calls[0].module
    original = nn.Module.__call__

    def called(module: nn.Module, *a: Any, **k: Any) -> Any:
        return recorder.call(original, module, a, k)

    args = _taken(recorder, args, "")
    kwargs = {k: _taken(recorder, (v,), k)[0] for k, v in kwargs.items()}
    with _kept(model, recorder), _opened(), torch.set_grad_enabled(how.grad):
        if how.training is not None:
            for module in model.modules():
                module.training = how.training
        training = model.training
        if how.dtype is not None:
            _deploy(model, recorder, how.dtype)
        with recorder, how.around(recorder) if how.around is not None else contextlib.nullcontext():
            nn.Module.__call__ = called  # type: ignore[method-assign]
            try:
                if how.method is None:
                    out = model(*args, **kwargs)
                else:
                    recorder.stack.append(0)
                    out = getattr(model, how.method)(*args, **kwargs)
            finally:
                nn.Module.__call__ = original  # type: ignore[method-assign]
        returned = list(tensors_in(out))
        recorder.calls[0].last = len(recorder.nodes)
        outputs = dict.fromkeys(recorder.version(t) for t in returned if t.is_floating_point() or t.is_complex())
        kept = recorder.tensors + returned
        found = Record(recorder.nodes, recorder.calls, tuple(outputs), frozenset(id(t) for t in returned),
                       "abstract" if recorder.abstract else "real", model, kept, training)
        if finish is not None:
            finish(found, returned)
    return found


def record_other_mode(first: Record, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype | None) -> Record:
    """The forward in the mode (train, eval) that `first` was not in.

    Of repeated blocks that did the same operations in `first`, one runs; the others hand its outputs on.
    """
    return record(first.model, args, kwargs, How(dtype=dtype, training=not first.training, alike=_alike(first)))


def _alike(record: Record) -> dict[int, int]:
    """Module identity -> the identity of the first numbered module that did the same operations on the same shapes."""
    first: dict[Any, int] = {}
    found: dict[int, int] = {}
    for call in record.calls:
        if call.path.rpartition(".")[2].isdigit() and call.number == 0 and call.outs and call.last > call.first:
            did = tuple([(n.op, n.shape) for n in record.nodes[call.first:call.last]])
            key = (type(call.module), call.path.rpartition(".")[0], did, _options(call.module))
            other = first.setdefault(key, id(call.module))
            if other != id(call.module):
                found[id(call.module)] = other
    return found


def _options(module: nn.Module) -> tuple[Any, ...]:
    """What a module and its parts have switched on: flags, and rates that are not zero. They may tell blocks apart in the other mode alone."""
    return tuple([(k, v if v is None else bool(v)) for m in module.modules() for k, v in vars(m).items()
                  if not k.startswith("_") and k != "training" and (v is None or isinstance(v, (bool, float)))])


def dtype_named(dtype: Any) -> torch.dtype | None:
    """A torch dtype from itself or its name. Raises UsageError."""
    found = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
    if dtype is None or (isinstance(found, torch.dtype) and found.is_floating_point):
        return found
    raise UsageError(f"check: dtype {dtype!r} is no floating torch dtype; want float32, bfloat16, float16 or float64")


def _taken(recorder: Recorder, value: Any, name: str) -> Any:
    """Inputs as the run takes them: on meta without numbers, or cloned, each a leaf of the record."""
    def take(v: Any, path: str) -> Any:
        if isinstance(v, Tensor):
            kind = recorder.dtype if recorder.dtype is not None and v.is_floating_point() else v.dtype
            t = torch.empty_strided(v.shape, v.stride(), dtype=kind, device="meta") if recorder.abstract else v.detach().clone().to(kind)
            if v.requires_grad and not recorder.abstract:
                t.requires_grad_()
            n = recorder.leaf(t, "input", path)
            if not v.is_meta and recorder.dtype is None:
                recorder.values[n] = v.detach()
            return t
        if isinstance(v, dict):
            return {k: take(x, f"{path}.{k}" if path else str(k)) for k, x in v.items()}
        if isinstance(v, (list, tuple)) and not hasattr(v, "_fields"):
            return type(v)([take(x, path or str(i)) for i, x in enumerate(v)])
        return v
    return take(value, name)


def _deploy(model: nn.Module, recorder: Recorder, dtype: torch.dtype) -> None:
    """Floating weights in the deployed type: cast for a real run, else stand-ins in their place, so that the forward reads this type off them."""
    if not recorder.abstract:
        for t in (*model.parameters(), *model.buffers()):
            if t.is_floating_point():
                t.data = t.data.to(dtype)
        return
    done: dict[int, Tensor] = {}
    for prefix, module in model.named_modules():
        for kind, holder in (("param", module._parameters), ("buffer", module._buffers)):
            for name, t in holder.items():
                if t is None or not t.is_floating_point():
                    continue
                twin = done.get(id(t))
                if twin is None:
                    twin = torch.empty_strided(t.shape, t.stride(), dtype=dtype, device="meta")
                    twin = done[id(t)] = nn.Parameter(twin, requires_grad=False) if kind == "param" else twin
                    recorder.stored[id(twin)] = (kind, f"{prefix}.{name}" if prefix else name)
                    recorder.tensors.append(twin)
                holder[name] = twin


@contextlib.contextmanager
def _opened() -> Iterator[None]:
    """Fused encoder layers take their plain path, compiled parts run eagerly."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        if "torch._dynamo" in sys.modules:
            with torch.compiler.set_stance("force_eager"):
                yield
        else:
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


@contextlib.contextmanager
def watching(model: nn.Module, mode: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grad: bool) -> Iterator[tuple[Any, Any]]:
    """A real forward may be run inside: module calls go through `mode.call`, and the model is put back afterwards. Gives its inputs, copied."""
    _callable(model, args, kwargs)
    original = nn.Module.__call__

    def called(module: nn.Module, *a: Any, **k: Any) -> Any:
        return mode.call(original, module, a, k)

    def copied(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().clone().requires_grad_(value.requires_grad)
        if isinstance(value, dict):
            return {k: copied(v) for k, v in value.items()}
        return type(value)([copied(v) for v in value]) if isinstance(value, (list, tuple)) and not hasattr(value, "_fields") else value

    with _kept(model, mode), _opened(), torch.set_grad_enabled(grad):
        nn.Module.__call__ = called  # type: ignore[method-assign]
        try:
            yield copied(args), copied(kwargs)
        finally:
            nn.Module.__call__ = original  # type: ignore[method-assign]


@contextlib.contextmanager
def _kept(model: nn.Module, recorder: Any) -> Iterator[None]:
    """Puts attributes, containers, stored tensors and random state back as they were found."""
    held = _held(model)
    modules = [m for m in held if isinstance(m, nn.Module)]
    stored = [(t, t.data, t.requires_grad) for m in modules for t in (*m._parameters.values(), *m._buffers.values()) if t is not None]
    buffers = [] if recorder.abstract else [(b, b.detach().clone()) for m in modules for b in m._buffers.values() if b is not None]
    state, python, array = torch.get_rng_state(), random.getstate(), np.random.get_state()
    empty = [h for h in held if isinstance(h, _CONTAINERS) and not h]            # most are: a module has a dozen of hook tables
    before = [(h, _content(h)) for h in held if not isinstance(h, _CONTAINERS) or h]
    try:
        yield
    finally:
        for holder, content in before:
            live = holder if isinstance(holder, _CONTAINERS) else vars(holder)
            live.clear()
            (live.extend if isinstance(live, (list, collections.deque)) else live.update)(content)
        for container in empty:
            if container:
                container.clear()
        for storage, content in recorder.saved.values():
            storage.copy_(content)
        for tensor, data, grad in stored:
            tensor.data = data
            if tensor.requires_grad != grad:
                tensor.requires_grad_(grad)
        with torch.no_grad():
            for tensor, value in buffers:
                tensor.copy_(value)
        torch.set_rng_state(state)
        random.setstate(python)
        np.random.set_state(array)


_CONTAINERS = (dict, list, set, collections.deque)


def _content(holder: Any) -> Any:
    if isinstance(holder, (list, set, collections.deque)):
        return list(holder)
    return dict(holder if isinstance(holder, dict) else vars(holder))


def _held(model: nn.Module) -> list[Any]:
    """The model and every module, container and plain object that it holds, registered or not."""
    found: dict[int, Any] = {}
    stack: list[Any] = [model]
    while stack:
        v = stack.pop()
        if id(v) in found or isinstance(v, (Tensor, type)):
            continue
        if isinstance(v, _CONTAINERS):
            stack.extend(v.values() if isinstance(v, dict) else v)
        elif isinstance(v, tuple):
            stack.extend(v)
            continue
        elif isinstance(v, nn.Module) or (hasattr(v, "__dict__") and not callable(v) and not isinstance(v, types.ModuleType)):
            stack.extend(vars(v).values())
        else:
            continue
        found[id(v)] = v
    return list(found.values())
