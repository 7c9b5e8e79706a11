"""mix: every lane becomes a weighted sum of all lanes."""

from typing import Any

from torch import Tensor
from torch.autograd import Function

from skipway.ops._lanes import as_lanes, bmm, by_token, for_tokens, in_rows, mm, summed
from skipway.ops._mode import run


def mix(lanes: Tensor, matrix: Tensor) -> Tensor:
    """out_j = sum_i matrix_ji lanes_i.

    lanes (n, ..., dim); matrix (m, n), the same for all tokens, or (..., m, n). Gives (m, ..., dim) in the dtype of the lanes.
    """
    matrix = matrix.to(lanes.dtype)
    if in_rows(lanes, matrix.dim() == 2):
        return mm(matrix, lanes.reshape(lanes.shape[0], -1)).view(-1, *lanes.shape[1:])
    return run(_Mix, lanes, matrix)


def plain(lanes: Tensor, matrix: Tensor) -> Tensor:
    """The same as a broadcast product and a sum."""
    return (matrix.unsqueeze(-1) * lanes.movedim(0, -2).unsqueeze(-3)).sum(-2).movedim(-2, 0)


class _Mix(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(lanes: Tensor, matrix: Tensor) -> Tensor:
        x = by_token(lanes)
        return as_lanes(bmm(for_tokens(matrix, x), x), lanes[0])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        lanes, matrix = ctx.saved_tensors
        x, g = by_token(lanes), by_token(g)
        return as_lanes(bmm(for_tokens(matrix, x).mT, g), lanes[0]), summed(bmm(g, x.mT), matrix)
