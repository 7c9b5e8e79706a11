"""A real forward with the value of every version kept, and on request the gradient of every value.

Values are not copied while they are made: a tensor is its own value until something writes to its storage, and only then is what
it held copied.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.utils.checkpoint import CheckpointFunction

from skipway._errors import TraceError
from skipway.wiring.forward import How, record_values
from skipway.wiring.naming import TORCH_HOME
from skipway.wiring.record import LEAVES, Record, Recorder, tensors_in
from skipway.wiring.trace import Recovery, label, uncollected

Loss = Callable[..., Tensor]
_CHECKPOINT = CheckpointFunction.forward.__code__
_RECORD = Recorder.call.__code__.co_filename
SMALL = 16          # the most lanes that a stream has


class Keeper(Recorder):
    """A recorder of a real forward that keeps what each version held, and hooks gradients where there are any."""

    def __init__(self, model: nn.Module, dtype: torch.dtype | None = None) -> None:
        super().__init__(model, False, dtype)
        self.live: dict[int, list[int]] = {}            # storage group -> versions whose value is the tensor itself
        self.grads: dict[int, Tensor] = {}
        self.hooked: set[int] = set()
        self.handles: list[Any] = []                    # of the hooks, which a parameter would keep
        self.tracked: set[int] = set()                  # versions whose tensor is in the autograd graph
        self.functions: dict[int, type] = {}            # versions that a custom autograd function made -> that function
        self.untracked: dict[int, str] = {}             # versions made while gradients were off -> "no_grad" or "checkpoint"
        self._off = (-1, "")
        self.makers: dict[int, tuple[str, ...]] = {}    # versions that are small square matrices -> functions that made them, innermost first

    def leaf(self, t: Tensor, op: str | None = None, name: str = "") -> int:
        n = super().leaf(t, op, name)
        self._keep(n, t.detach())
        return n

    def version(self, t: Tensor) -> int:
        n = super().version(t)
        if t.requires_grad:
            maker = t.grad_fn
            if maker is not None or not t._is_view():   # a view made with gradients off says that it requires them, and has none
                self.tracked.add(n)
            if isinstance(maker, BackwardCFunction):
                self.functions[n] = maker._forward_cls
            if torch.is_grad_enabled():
                self.hook(n, t)
        return n

    def hook(self, n: int, t: Tensor) -> None:
        """Have the gradient of version `n` stored when there is one."""
        if n not in self.hooked and t.requires_grad:
            self.hooked.add(n)
            self.handles.append(t.register_hook(lambda grad: self._gradient(n, grad)))

    def _gradient(self, n: int, grad: Tensor | None) -> None:
        if grad is not None:                            # an output of a fused operation that nothing used
            self.grads[n] = grad.detach().clone()

    def _patched(self, n: int, w: int, written: Tensor, t: Tensor) -> int:
        m = super()._patched(n, w, written, t)
        self.nodes[m].args = (_geometry(written), _geometry(t))
        self._keep(m, t)
        return m

    def _save(self, args: Any, kwargs: Any, info: Any) -> None:
        super()._save(args, kwargs, info)
        for i in info.writes or (3, 4):                 # the schema of native_batch_norm does not tell that it writes
            written = args[i] if i < len(args) else None
            for t in tensors_in((written, *kwargs.values()), depth=2):
                if id(t) in self.current:
                    self.freeze(self.nodes[self.current[id(t)]].group)

    def freeze(self, group: int) -> None:
        """Copy what the versions of a storage hold, for it is about to change."""
        for n in self.live.pop(group, ()):
            self.values[n] = self.values[n].detach().clone()

    def _record(self, func: Any, info: Any, args: Any, kwargs: Any, ins: tuple[int, ...], out: Any) -> Any:
        before = len(self.nodes)
        made = super()._record(func, info, args, kwargs, ins, out)
        if len(self.nodes) > before:
            shape = self.nodes[-1].shape
            if len(shape) > 1 and shape[-1] == shape[-2] <= SMALL:
                self.makers.update(dict.fromkeys(range(before, len(self.nodes)), _functions()))
            for t in tensors_in((out, args if info.writes else (), kwargs if info.writes else {}), depth=3):
                n = self.current.get(id(t), -1)
                if n >= before and n not in self.values:
                    self._keep(n, t)
            if torch.is_grad_enabled():
                self._off = (-1, "")
            else:
                call = self.nodes[before].call
                if self._off[0] != call:
                    self._off = (call, _why_off())
                self.untracked.update(dict.fromkeys(range(before, len(self.nodes)), self._off[1]))
        return made

    def _keep(self, n: int, t: Tensor) -> None:
        self.values[n] = t
        self.live.setdefault(self.nodes[n].group, []).append(n)


def _functions() -> tuple[str, ...]:
    """Names of the functions outside torch between an operation and its module's call, innermost first."""
    names: list[str] = []
    frame = sys._getframe(2)
    while frame is not None and frame.f_code is not Recorder.call.__code__:
        file = frame.f_code.co_filename
        if not file.startswith(TORCH_HOME) and file not in (__file__, _RECORD):
            names.append(frame.f_code.co_name)
        frame = frame.f_back                            # type: ignore[assignment]
    return tuple(names)


def _why_off() -> str:
    """What turned gradients off: a checkpoint that recomputes its part later, or other code."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code is _CHECKPOINT:
            return "checkpoint"
        frame = frame.f_back                            # type: ignore[assignment]
    return "no_grad"


def _geometry(t: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return tuple(t.shape), tuple(t.stride()), int(t.storage_offset())


@dataclass(slots=True, eq=False)
class Run:
    """One real forward: what was recovered of it, the value of every node, and where there was a backward, gradients."""

    facts: Recovery
    values: dict[int, Tensor]
    grads: dict[int, Tensor] = field(default_factory=dict)              # node -> gradient of the loss
    weights: dict[str, Tensor | None] = field(default_factory=dict)     # trainable parameter -> its gradient
    loss: float | None = None
    failed: Exception | None = None                                     # what the backward raised
    tracked: frozenset[int] = frozenset()                               # nodes whose tensor was in the autograd graph
    functions: Mapping[int, type] = field(default_factory=dict)         # node -> the custom autograd function that made its tensor
    untracked: Mapping[int, str] = field(default_factory=dict)          # nodes made with gradients off -> "no_grad" or "checkpoint"
    makers: Mapping[int, tuple[str, ...]] = field(default_factory=dict) # nodes that are small square matrices -> functions that made them

    @property
    def record(self) -> Record:
        return self.facts.record


def run(
    model: nn.Module, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, *, dtype: torch.dtype | None = None,
    training: bool | None = None, backward: bool = False, loss: Loss | None = None,
) -> Run:
    """One real forward of `model(*args, **kwargs)` with all values, and with `backward` the gradients of a scalar.

    The scalar is `loss(output tensors)`; without one it is a fixed random projection of every floating output. The model, its buffers,
    gradients and random state are left as they were, also after an exception.

    Args:
        dtype: floating weights and inputs are cast to it for the run (None: as they are). training: the mode (None: as it is).

    Raises:
        NeedsDataError: a weight is on the meta device.
        TraceError: the forward fails, or the loss is no scalar.
    """
    keeper = Keeper(model, dtype)
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    kept = [(p, p.grad) for p in parameters.values()]
    found: dict[str, Any] = {}

    def finish(record: Record, returned: list[Tensor]) -> None:
        written = [group for group in keeper.writes if record.nodes[group].op in LEAVES]
        for group in written:                           # what belongs to the model is put back: keep what it held
            keeper.freeze(group)
        if not backward:
            return
        for t in returned:
            if t.requires_grad and id(t) in keeper.current:
                keeper.hook(keeper.current[id(t)], t)
        scalar = _projection(returned) if loss is None else loss(*returned)
        if not isinstance(scalar, Tensor) or scalar.numel() != 1:
            shape = tuple(scalar.shape) if isinstance(scalar, Tensor) else type(scalar).__name__
            raise TraceError(f"loss: got {shape}, want one number; return a scalar tensor, such as loss.mean()")
        found["loss"] = float(scalar.detach())
        for p in parameters.values():
            p.grad = None
        if not scalar.requires_grad:
            return
        try:
            scalar.backward()
        except RuntimeError as error:
            found["failed"] = error
        found["weights"] = {name: None if p.grad is None else p.grad.detach() for name, p in parameters.items()}

    try:
        with uncollected():
            record = record_values(keeper, args, kwargs or {}, How(dtype=dtype, training=training, grad=backward), finish)
            facts = Recovery(label(record))
    finally:
        for handle in keeper.handles:
            handle.remove()
        for p, grad in kept:
            p.grad = grad
    return Run(facts, keeper.values, keeper.grads, found.get("weights", dict.fromkeys(parameters) if backward else {}), found.get("loss"),
               found.get("failed"), frozenset(keeper.tracked), keeper.functions, keeper.untracked if backward else {},
               keeper.makers)


def _projection(returned: list[Tensor]) -> Tensor:
    """The sum of all floating outputs, each times fixed random numbers: no direction of the output is left out."""
    total = torch.zeros(())
    generator = torch.Generator().manual_seed(0)
    for t in returned:
        if t.is_floating_point() and t.numel():
            noise = torch.randn(t.shape, generator=generator, dtype=torch.float32).to(t.device)
            total = total + (t.double() * noise).sum() if t.dtype == torch.float64 else total + (t.float() * noise).sum()
    return total
