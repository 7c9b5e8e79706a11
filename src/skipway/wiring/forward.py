"""Runs the forward that `record` watches, and leaves the model as it was.

Fused and wrapped parts are opened for the time of the run: the encoder fast path is off, compiled parts run eagerly. Attributes,
buffers, parameters and random state are put back, also after an exception.
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import NeedsDataError, TraceError, UsageError
from skipway.wiring.record import Record, Recorder, tensors_in


def record(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], method: str | None = None) -> Record:
    """One forward (or one call of `method`) as a `Record`; without numbers where the model allows, else a real one.

    Raises TraceError where the forward fails, NeedsDataError where it needs values and the model holds none.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"trace: got {type(model).__name__}, want a torch.nn.Module; pass the model first, then its inputs")
    if not any(True for _ in tensors_in((args, kwargs))):
        given = ", ".join([type(a).__name__ for a in args] + [f"{k}: {type(v).__name__}" for k, v in kwargs.items()]) or "nothing"
        raise UsageError(f"trace: got {given} as inputs, want at least one tensor; call it as you would call the model")
    try:
        return _run(model, args, kwargs, True, method)
    except Exception as error:
        on_meta = next((n for n, p in (*model.named_parameters(), *model.named_buffers()) if p.is_meta), None)
        if on_meta is not None or any(t.is_meta for t in tensors_in((args, kwargs))):
            if isinstance(error, NeedsDataError):
                raise NeedsDataError(f"{type(model).__name__}.forward: {error}; pass a small model with real weights and real inputs") from error
            raise _failed(model, error) from error
        reason = str(error).split("\n")[0]
    try:
        found = _run(model, args, kwargs, False, method)
    except Exception as error:
        raise _failed(model, error) from error
    found.notes.append(f"the forward needs data ({reason[:120]}): recorded from a real run")
    return found


def _failed(model: nn.Module, error: Exception) -> TraceError:
    place = error.__traceback__
    where = ""
    while place is not None:
        code = place.tb_frame.f_code
        if not code.co_filename.startswith((torch.__path__[0], __file__)) and "skipway/wiring" not in code.co_filename:
            where = f" at {code.co_filename}:{place.tb_lineno}"
        place = place.tb_next
    text = " ".join(str(error).split())[:300]
    return TraceError(f"{type(model).__name__}.forward failed{where}: {type(error).__name__}: {text}; check that these inputs fit the model")


def _run(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], abstract: bool, method: str | None) -> Record:
    recorder = Recorder(model, abstract)
    original = nn.Module.__call__

    def called(module: nn.Module, *a: Any, **k: Any) -> Any:
        return recorder.call(original, module, a, k)

    args = _taken(recorder, args, "")
    kwargs = {k: _taken(recorder, (v,), k)[0] for k, v in kwargs.items()}
    with _kept(model, recorder), _opened(), torch.no_grad(), recorder:
        nn.Module.__call__ = called  # type: ignore[method-assign]
        try:
            if method is None:
                out = model(*args, **kwargs)
            else:
                recorder.stack.append(0)
                out = getattr(model, method)(*args, **kwargs)
        finally:
            nn.Module.__call__ = original  # type: ignore[method-assign]
    returned = list(tensors_in(out))
    recorder.calls[0].last = len(recorder.nodes)
    outputs = dict.fromkeys(recorder.version(t) for t in returned if t.is_floating_point() or t.is_complex())
    how = "abstract" if abstract else "real"
    kept = recorder.tensors + returned
    return Record(recorder.nodes, recorder.calls, tuple(outputs), frozenset(id(t) for t in returned), how, model, kept,
                  model.training, recorder.current)


def _taken(recorder: Recorder, value: Any, name: str) -> Any:
    """Inputs as the run takes them: on meta without numbers, or cloned, each a leaf of the record."""
    def take(v: Any, path: str) -> Any:
        if isinstance(v, Tensor):
            t = torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device="meta") if recorder.abstract else v.detach().clone()
            n = recorder.leaf(t, "input", path)
            if not v.is_meta:
                recorder.values[n] = v.detach()
            return t
        if isinstance(v, dict):
            return {k: take(x, f"{path}.{k}" if path else str(k)) for k, x in v.items()}
        if isinstance(v, (list, tuple)) and not hasattr(v, "_fields"):
            return type(v)([take(x, path or str(i)) for i, x in enumerate(v)])
        return v
    return take(value, name)


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
def _kept(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Puts attributes, stored tensors and random state back as they were found."""
    attributes = [(m.__dict__, dict(m.__dict__)) for m in model.modules()]
    containers = [(v, type(v)(v)) for _, d in attributes for v in d.values() if type(v) in (dict, list, set) and v]
    empty = [v for _, d in attributes for v in d.values() if type(v) in (dict, list, set) and not v]
    buffers = [] if recorder.abstract else [(b, b.detach().clone()) for b in model.buffers()]
    state = torch.get_rng_state()
    try:
        yield
    finally:
        for live, saved in attributes:
            live.clear()
            live.update(saved)
        for container in empty:
            container.clear()
        for container, saved_items in containers:
            container.clear()
            (container.extend if isinstance(container, list) else container.update)(saved_items)
        with torch.no_grad():
            for tensor, value in (*recorder.saved, *buffers):
                tensor.copy_(value)
        torch.set_rng_state(state)
