"""sinkhorn: positive matrices become doubly stochastic, columns and rows divided by their sums in turn."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from skipway.ops._mode import again, owned, run


def sinkhorn(logits: Tensor, iterations: int = 20, floor: float = 0.0) -> Tensor:
    """M_0 = exp(logits); `iterations` times M <- M / its column sums, M <- M / its row sums.

    With a floor f, f is added to the entries after the first division, and to every later sum: M_0 = exp(logits) / its column sums + f, then M <- M /
    (its row sums + f), and iterations - 1 times M <- M / (its column sums + f), M <- M / (its row sums + f).

    logits (..., n, n), rows first. Gives the last M: without a floor its rows sum to 1 exactly, its columns as well as the iterations made them.
    Without a floor the first iteration works on logarithms, where no sum is too small; after it none is under 1 / n^2. Under torch.compile it is one
    operation of the graph: unrolled, its 2 * `iterations` steps a sublayer keep a compiler busy for minutes.
    """
    n = logits.shape[-1]
    moved = logits.reshape(-1, n, n).movedim(0, -1).contiguous()        # tokens last: sums over lanes are then adds of whole vectors
    made = _opaque(moved, iterations, floor)[0] if torch.compiler.is_compiling() else run(_Sinkhorn, moved, iterations, floor)[0]
    return made.movedim(-1, 0).reshape(logits.shape)


def plain(logits: Tensor, iterations: int = 20, floor: float = 0.0) -> Tensor:
    """The same, under autograd's own hand."""
    m = (logits - logits.amax(-2, keepdim=True).detach()).exp()
    m = m / m.sum(-2, keepdim=True) + floor
    m = m / (m.sum(-1, keepdim=True) + floor)
    for _ in range(iterations - 1):
        m = m / (m.sum(-2, keepdim=True) + floor)
        m = m / (m.sum(-1, keepdim=True) + floor)
    return m


def forward(logits: Tensor, iterations: int, floor: float) -> tuple[Tensor, Tensor]:
    """The last M, and what it was divided by, (2 iterations, n, tokens), columns and rows in turn, with ones for the divisions inside the first
    softmaxes. Logits are (n, n, tokens)."""
    done = 1 if floor else 2
    m = logits.softmax(0) + floor if floor else logits.log_softmax(0).log_softmax(1).exp()
    if owned(logits) and not torch.is_grad_enabled():
        sums = torch.ones(2 * iterations, *m.shape[1:], dtype=m.dtype, device=m.device)
        for k, s in enumerate(_views(sums)[done:], done):
            torch.sum(m, k % 2, True, out=s)
            m.div_(s.add_(floor) if floor else s)
        return m, sums
    made = [torch.ones_like(m[0])] * done
    for k in range(done, 2 * iterations):
        s = m.sum(k % 2, keepdim=True) + floor
        m = m / s
        made.append(s.squeeze(k % 2))
    return m, torch.stack(made)


def backward(g: Tensor, logits: Tensor, m: Tensor, sums: Tensor, floor: float) -> Tensor:
    """Walks back over the divisions. With Q_t = M_t dM_t, the gradient of log M_t, each is Q_{t-1} = Q_t - M_t sum(Q_t), M_{t-1} = M_t s_t: nothing
    is divided. The first is the softmax's, whose M lacks the floor."""
    q = m * g
    steps = list(enumerate(_views(sums)))[:0:-1]
    if owned(g) and not torch.is_grad_enabled():
        m = m.clone()
        for k, s in steps:
            q.addcmul_(m, q.sum(k % 2, keepdim=True), value=-1)
            m.mul_(s)
    else:
        for k, s in steps:
            q, m = torch.addcmul(q, m, q.sum(k % 2, keepdim=True), value=-1), m * s
    start = logits.softmax(0)
    if floor:
        q = q * (start / (start + floor))
    return q - start * q.sum(0)


def _views(sums: Tensor) -> list[Tensor]:
    """Each step's sums with the axis that they were taken over."""
    columns, rows = sums[0::2].unsqueeze(1).unbind(0), sums[1::2].unsqueeze(2).unbind(0)
    return [s for pair in zip(columns, rows) for s in pair]


class _Sinkhorn(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, iterations: int, floor: float) -> tuple[Tensor, Tensor]:
        return forward(logits, iterations, floor)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, float], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[0], *output)
        ctx.iterations = inputs[1]
        ctx.floor = inputs[2]

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, _: Any) -> tuple[Tensor | None, None, None]:
        if g is None:
            return None, None, None
        logits, m, kept = ctx.saved_tensors
        if again():
            m, kept = forward(logits, ctx.iterations, ctx.floor)
        return backward(g, logits, m, kept, ctx.floor), None, None


@torch.library.custom_op("skipway::sinkhorn", mutates_args=())
def _opaque(logits: Tensor, iterations: int, floor: float) -> tuple[Tensor, Tensor]:
    return forward(logits, iterations, floor)


@_opaque.register_fake
def _(logits: Tensor, iterations: int, floor: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(logits), logits.new_empty(2 * iterations, *logits.shape[1:])


@torch.library.custom_op("skipway::sinkhorn_backward", mutates_args=())
def _opaque_backward(g: Tensor, logits: Tensor, m: Tensor, sums: Tensor, floor: float) -> Tensor:
    return backward(g, logits, m, sums, floor).contiguous()


@_opaque_backward.register_fake
def _(g: Tensor, logits: Tensor, m: Tensor, sums: Tensor, floor: float) -> Tensor:
    return torch.empty_like(m, memory_format=torch.contiguous_format)


def _gradient(ctx: Any, g: Tensor, _: Any) -> tuple[Tensor, None, None]:
    return _opaque_backward(g, *ctx.saved_tensors, ctx.floor), None, None


_opaque.register_autograd(_gradient, setup_context=_Sinkhorn.setup_context)
