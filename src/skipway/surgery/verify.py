"""`edit.verify`: the model before and after an edit on the same inputs, in numbers."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from skipway._errors import RewireError
from skipway.wiring.record import tensors_in
from skipway.wiring.ulp import ulp_distance

if TYPE_CHECKING:
    from skipway.surgery.edit import Edit

NEAR = 1e-6         # of the largest output, for edits that keep the function up to rounding


@dataclass(frozen=True)
class Verification:
    """What an edit changes on some inputs.

    stated: "exact" where every action starts at the model's function to the last bit, "near" where up to rounding (1e-6 of the largest output),
    "changes" where the function is another. `ok` says whether what is stated holds.
    """

    stated: str
    ok: bool
    ulp: int                        # largest distance of two outputs, in units in the last place
    difference: float               # the largest, absolute
    relative: float                 # by the largest output before
    gradient_ulp: int               # of the gradients of the model's own parameters
    gradient_difference: float
    gradient_at: str                # the parameter whose gradient differs most, relative to its largest; "" where none does
    parameters: int                 # added
    flops_before: int               # of one forward
    flops_after: int

    def __str__(self) -> str:
        word = {"exact": "equal to the last bit", "near": f"the same function within {NEAR:g}", "changes": "another function"}[self.stated]
        at = f" at {self.gradient_at}" if self.gradient_at else ""
        lines = [f"stated: {word}: {'holds' if self.ok else 'DOES NOT HOLD'}",
                 f"outputs: {self.ulp} ulp, largest difference {self.difference:.3g} ({self.relative:.3g} of the largest output)",
                 f"gradients: {self.gradient_ulp} ulp, largest difference {self.gradient_difference:.3g}{at}",
                 f"parameters added: {self.parameters:,}; FLOPs of a forward: {self.flops_before:,} before, {self.flops_after:,} after"]
        return "\n".join(lines)


def verify(edit: "Edit", args: tuple[Any, ...], kwargs: dict[str, Any], loss: Callable[[Any], Tensor] | None) -> Verification:
    """Run the model without and with the edit, in the mode it is in, with the same random numbers, and compare.

    loss: gives one number of the model's output, for the gradients; without it a fixed weighted sum of all its floating outputs. The model, its
    gradients, buffers and the random state are left as they were. Raises RewireError where the edit was undone, or an output has another shape.
    """
    if not edit.stands:
        raise RewireError("rewire: this edit was undone; apply its plan again to verify it")
    model = edit.model
    with _kept(model):
        with edit.off():
            before, gradients, flops = _run(model, args, kwargs, loss)
        after, changed, more = _run(model, args, kwargs, loss)
    if [t.shape for t in before] != [t.shape for t in after]:
        raise RewireError(f"rewire: outputs of shapes {[tuple(t.shape) for t in before]} became {[tuple(t.shape) for t in after]}")
    scale = max((float(t.abs().max()) for t in before if t.numel()), default=0.0)
    difference = max((_apart(a, b) for a, b in zip(before, after)), default=0.0)
    ulp = max((ulp_distance(a, b) for a, b in zip(before, after)), default=0)
    at, worst = "", 0.0
    for name, g in gradients.items():
        other = changed.get(name)
        size = float(g.abs().max()) if g.numel() else 0.0
        apart = (math.inf if other is None else _apart(g, other)) / (size or 1.0)
        if apart > worst:
            at, worst = name, apart
    gradient_ulp = max((ulp_distance(g, changed[n]) for n, g in gradients.items() if n in changed), default=0)
    gradient = max((_apart(g, changed[n]) for n, g in gradients.items() if n in changed), default=0.0)
    actions = [a for rule in edit.rules for a in rule.actions]
    stated = "exact" if all(a.exact for a in actions) else "near" if all(a.exact or a.near for a in actions) else "changes"
    relative = difference / scale if scale else difference
    ok = {"exact": ulp == 0 and gradient_ulp == 0 and not at, "near": relative <= NEAR, "changes": True}[stated]
    return Verification(stated, ok, ulp, difference, relative, gradient_ulp, gradient, at, sum(p.numel() for p in edit.parameters()), flops, more)


def _apart(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).abs().nan_to_num(0.0).max()) if a.numel() else 0.0


def _run(model: nn.Module, args: Any, kwargs: Any, loss: Any) -> tuple[list[Tensor], dict[str, Tensor], int]:
    """Outputs, gradients of the model's own parameters by name, and FLOPs of the forward."""
    for p in model.parameters():
        p.grad = None
    state = torch.get_rng_state()
    with torch.enable_grad(), FlopCounterMode(display=False) as counter:
        out = model(*args, **kwargs)
    flops = counter.get_total_flops()
    floating = [t for t in tensors_in(out) if t.is_floating_point()]
    if loss is not None:
        value = loss(out)
    else:
        parts = [(t * torch.linspace(-1, 1, t.numel(), dtype=t.dtype, device=t.device).view(t.shape)).sum() for t in floating if t.requires_grad]
        value = sum(parts[1:], parts[0]) if parts else None
    if value is not None and value.requires_grad:
        value.backward()
    torch.set_rng_state(state)
    grads = {n: p.grad.detach().clone() for n, p in model.named_parameters() if p.grad is not None and ".skip_" not in f".{n}"}
    return [t.detach().clone() for t in floating], grads, flops


@contextmanager
def _kept(model: nn.Module) -> Iterator[None]:
    grads = [(p, p.grad) for p in model.parameters()]
    buffers = [(b, b.detach().clone()) for b in model.buffers()]
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)
        for p, g in grads:
            p.grad = g
        with torch.no_grad():
            for b, v in buffers:
                b.copy_(v)
