"""sinkhorn_floored: as sinkhorn, with a small number that keeps entries and sums away from zero."""

from torch import Tensor


def sinkhorn_floored(logits: Tensor, iterations: int, floor: float) -> Tensor:
    """M_0 = exp(logits) / its column sums + floor, then M <- M / (its row sums + floor); and iterations - 1 times M <- M / (its column sums + floor),
    M <- M / (its row sums + floor).

    logits (..., n, n), rows first. Rows and columns sum to 1 but for the floor.
    """
    m = logits.softmax(-2) + floor
    m = m / (m.sum(-1, keepdim=True) + floor)
    for _ in range(iterations - 1):
        m = m / (m.sum(-2, keepdim=True) + floor)
        m = m / (m.sum(-1, keepdim=True) + floor)
    return m
