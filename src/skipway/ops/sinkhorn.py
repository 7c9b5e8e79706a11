"""sinkhorn: positive matrices become doubly stochastic, columns and rows divided by their sums in turn."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from skipway.ops._mode import again

LOWEST = -80.0          # exp of it is a normal number in float32: no row or column can sum to zero


def sinkhorn(logits: Tensor, iterations: int = 20) -> Tensor:
    """M_0 = exp(logits); `iterations` times M <- M / its column sums, M <- M / its row sums.

    logits (..., n, n), rows first. Gives the last M: its rows sum to 1 exactly, its columns as well as the iterations made them.
    Entries more than 80 below the largest of their column count as 80 below.
    """
    n = logits.shape[-1]
    moved = logits.reshape(-1, n, n).movedim(0, -1).contiguous()        # tokens last: sums over lanes are then adds of whole vectors
    return _Sinkhorn.apply(moved, iterations)[0].movedim(-1, 0).reshape(logits.shape)


def plain(logits: Tensor, iterations: int = 20) -> Tensor:
    """The same, under autograd's own hand."""
    m = (logits - logits.amax(-2, keepdim=True).detach()).clamp(min=LOWEST).exp()
    for _ in range(iterations):
        m = m / m.sum(-2, keepdim=True)
        m = m / m.sum(-1, keepdim=True)
    return m


def _forward(logits: Tensor, iterations: int) -> tuple[Tensor, ...]:
    """The last M and all sums; logits are (n, n, tokens)."""
    m = (logits - logits.amax(0)).clamp(min=LOWEST).exp()
    sums = []
    for _ in range(iterations):
        for axis in (0, 1):
            s = m.sum(axis, keepdim=True)
            m = m / s
            sums.append(s)
    return m, *sums


class _Sinkhorn(Function):
    """Backward keeps the sums s_t and the last M, and walks back over M_{t-1} = M_t s_t. With Q_t = M_t dM_t, each step is
    Q_{t-1} = Q_t - M_t sum(Q_t), and Q_0 is the gradient of the logits: nothing is divided."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, iterations: int) -> tuple[Tensor, ...]:
        return _forward(logits, iterations)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[0], *output)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, *_: Any) -> tuple[Tensor | None, None]:
        if g is None:
            return None, None
        logits, m, *sums = ctx.saved_tensors
        if again():
            m, *sums = _forward(logits, len(sums) // 2)
        q = m * g.contiguous()
        for k in reversed(range(len(sums))):
            q = torch.addcmul(q, m, q.sum(k % 2, keepdim=True), value=-1)
            m = m * sums[k]
        return torch.where(logits - logits.amax(0) < LOWEST, 0.0, q), None
