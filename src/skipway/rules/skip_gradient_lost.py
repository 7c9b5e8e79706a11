"""skip-gradient-lost: the gradient through a residual add disagrees with its forward.

What it does
    Finds the custom autograd functions whose forward holds a residual add or carries the stream on, gives each a random gradient and
    holds what its backward returns for the stream and the branch against the derivative of the very operations that its forward did.
Why it matters
    A fused add and norm has a backward written by hand. One that forgets the shortcut, or sends the shortcut's gradient through the
    norm, leaves the forward and every evaluation right, while training stalls or diverges (Dao-AILab/quack#53). A test that only
    looks at the normed output misses it.
Fires on
    `dnorm(dy + dstream)` where `dnorm(dy) + dstream` is right; a fused residual block that returns dF alone; a norm that hands the stream
    on as a second output and drops its gradient.
Quiet on
    Right backwards, also of reversible blocks and checkpoints; straight-through rounding; functions that only pass a value on and scale
    or turn its gradient on purpose; a gradient that is zero because the branch starts at zero.
What to do
    Add the gradient of the stream's own output to that of the norm's input, and return the sum for both operands of the add. Check with
    `torch.autograd.gradcheck` on all outputs together.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.rules._functions import Application, applications
from skipway.wiring import operations as ops
from skipway.wiring.evaluate import evaluate
from skipway.wiring.graph import Graph
from skipway.wiring.record import Record
from skipway.wiring.streams import Flow
from skipway.wiring.trace import Recovery, label

CODE = "SKW604"
STAGE = "train"
SEVERITY = "error"

# Relative distance of two gradients from where on they are different ones, by the narrowest type that the function computes in.
_LIMITS = {torch.float64: 1e-4, torch.float32: 5e-3}
_HALF = 0.05
# What has no derivative is given one by hand, on purpose.
_ROUNDING = frozenset([
    "round", "floor", "ceil", "trunc", "sign", "sgn", "argmax", "bucketize", "fake_quantize_per_tensor_affine_cachemask", "heaviside",
    "fake_quantize_per_channel_affine_cachemask", "quantize_per_tensor", "bernoulli"])


@dataclass(frozen=True)
class _Error:
    """How far the gradient of one input is from the right one, relative to that."""

    node: int
    error: float
    lost: bool              # none at all arrived


def check(facts: Facts) -> Iterator[Hit]:
    if not facts.train.run.functions:
        return
    record, values, found = applications(facts)
    recovery = Recovery(label(record))
    g = recovery.graph
    told: set[str] = set()
    for use in found:
        join = _joined(recovery, use)
        if join is None or not _judged(g, use):
            continue
        errors = _errors(record, values, g, use)
        if not errors:
            continue
        where = record.calls[record.nodes[join].call].path or _block(recovery, join) or type(record.model).__name__
        if where not in told:
            told.add(where)
            yield _hit(facts, recovery, use, join, errors, where)


def _joined(recovery: Recovery, use: Application) -> int | None:
    """A join of a main stream inside a function, or a node of the stream that it carries on."""
    for flow in (f for f in recovery.flows if f.main):
        for place in flow.places:
            if place.join.node in use.region:
                return place.join.node
            carried = [n for n in _carried(recovery.graph, flow, place.join.shortcut) if n in use.region]
            if carried:
                return carried[-1]
    return None


def _carried(g: Graph, flow: Flow, shortcut: int) -> list[int]:
    """The nodes by which a shortcut goes back over nothing but moves of its state."""
    found: list[int] = []
    n: int | None = shortcut
    while n is not None and n != flow.root.node and n not in found:
        found.append(n)
        n = next((i for i in g.nodes[n].ins if g.signal[i] and g.state[i] is g.state[n]), None)
    return found[::-1]


def _judged(g: Graph, use: Application) -> bool:
    """Whether a function's gradient is that of its forward if it is right: it computes, rounds nothing, and draws what its backward knows."""
    names = {g.nodes[n].op for n in use.region}
    draws = names & ops.RANDOM and use.function.__module__.startswith("torch.")
    return bool(names - ops.IDENTITY) and not names & _ROUNDING and not draws and bool(use.got)


def _errors(record: Record, values: dict[int, Tensor], g: Graph, use: Application) -> list[_Error]:
    """The inputs with signal whose gradients are wrong, whichever way a `detach` in the forward is read; none where one cannot say."""
    best: list[_Error] | None = None
    limit = max(_LIMITS.get(g.nodes[n].dtype, _HALF) for n in (*use.region, *use.got) if g.nodes[n].dtype.is_floating_point)
    for through in (True, False):
        want = _derivative(record, values, use, through)
        if want is None:
            continue
        found = [e for n in use.got if g.signal[n] for e in _compared(n, use.got[n], want.get(n), use, limit)]
        if best is None or len(found) < len(best):
            best = found
    return best or []


def _compared(n: int, got: Tensor | None, want: Tensor | None, use: Application, limit: float) -> list[_Error]:
    if want is None and got is None:
        return []
    shown = want if want is not None else got
    assert shown is not None
    a = torch.zeros_like(shown) if got is None else got
    b = torch.zeros_like(shown) if want is None else want
    scale = max(float(b.double().norm()), 1e-6 * float(sum(float(t.double().norm()) for t in use.given.values())))
    off = float((a.double() - b.double()).norm()) / scale
    lost = not bool(a.any())
    return [_Error(n, off, lost)] if off > limit else []


def _derivative(record: Record, values: dict[int, Tensor], use: Application, through: bool) -> dict[int, Tensor] | None:
    """The gradients of the inputs from the operations of the forward; None where torch knows no derivative of one of them.

    through: a `detach` inside the function, where nothing is tracked anyway, does not cut.
    """
    if through:
        alias = torch.ops.aten.alias.default
        nodes = [replace(n, op="alias", overload=alias) if n.id in use.region and n.op == "detach" else n for n in record.nodes]
        record = replace(record, nodes=nodes)
    given = {n: values[n].detach().clone().requires_grad_() for n in use.got if values[n].is_floating_point()}
    try:
        with torch.enable_grad():
            made = evaluate(record, values, use.outs, given)
            total: Any = sum((made[n] * use.given[n]).sum() for n in use.outs if made[n].requires_grad)
            grads = torch.autograd.grad(total, list(given.values()), allow_unused=True) if isinstance(total, Tensor) else [None] * len(given)
    except (RuntimeError, NotImplementedError):
        return None
    return {n: grad for n, grad in zip(given, grads, strict=True) if grad is not None}


def _block(recovery: Recovery, join: int) -> str:
    """The sublayer next to a join in the model's own forward."""
    place = next((p for p in recovery.places if p.join.node == join), None)
    return place.terms[0].modules[-1] if place is not None and place.terms and place.terms[0].modules else ""


def _hit(facts: Facts, recovery: Recovery, use: Application, join: int, errors: list[_Error], where: str) -> Hit:
    g = recovery.graph
    place = next((p for p in recovery.places if p.join.node == join), None)
    before = place.join.before if place is not None else g.state[join]
    stream = [e for e in errors if g.state[e.node] is before]
    worst = max(errors, key=lambda e: e.error)
    name = use.function.__name__
    what = "the stream" if stream else "the branch"
    how = "returns no gradient for" if (stream or [worst])[0].lost else f"is {worst.error:.2g} away, relative, from the right gradient for"
    text = (f"the backward of `{name}`, called in `{where}`, {how} {what}: it disagrees with what its forward computes; "
            "check it with torch.autograd.gradcheck on all outputs")
    node = recovery.record.nodes[join]
    line = node.where or recovery.record.calls[node.call].where
    return Hit(where, text, None, line, {"function": name, "error": float(f"{worst.error:.3g}"), "operand": what.split()[1], "lost": worst.lost})


class _FusedAddNorm(torch.autograd.Function):
    """(rms_norm(x + stream) * w, x + stream), with a backward that is right."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, stream: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        s = x + stream
        r = torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(s, r, w)
        return s * r * w, s

    @staticmethod
    def normed(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        s, r, w = ctx.saved_tensors
        gw = grad * w
        return r * (gw - s * r.pow(2) * (gw * s).mean(-1, keepdim=True)), (grad * s * r).flatten(0, -2).sum(0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        d, dw = _FusedAddNorm.normed(ctx, grads[0])
        return d + grads[1], d + grads[1], dw


class _Block(nn.Module):
    def __init__(self, fused: type[torch.autograd.Function], dim: int = 8) -> None:
        super().__init__()
        self.fused, self.weight, self.f = fused, nn.Parameter(torch.rand(dim) + 0.5), nn.Linear(dim, dim)

    def forward(self, x: Tensor, stream: Tensor) -> tuple[Tensor, Tensor]:
        y, stream = self.fused.apply(x, stream, self.weight)
        return self.f(y), stream


class _Net(nn.Module):
    def __init__(self, fused: type[torch.autograd.Function]) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 8)
        self.blocks = nn.ModuleList([_Block(fused) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        stream = self.stem(x)
        y = torch.zeros_like(stream)
        for block in self.blocks:
            y, stream = block(y, stream)
        return y + stream


def _example(fused: type[torch.autograd.Function]) -> Example:
    torch.manual_seed(0)
    return Example(_Net(fused).eval(), (torch.randn(2, 3, 4),), where="blocks.1", options={"stage": "train"})


def bad() -> Example:
    """The gradient of the stream goes through the norm."""

    class Fused(_FusedAddNorm):
        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
            d, dw = _FusedAddNorm.normed(ctx, grads[0] + grads[1])
            return d, d, dw

    return _example(Fused)


def good() -> Example:
    """The gradient of the stream is added to that of the norm."""
    return _example(_FusedAddNorm)
