"""What the operations on lanes share.

Lanes are (n, ..., dim). Where each token has coefficients of its own, a product is one of small matrices a token: (tokens, n, dim) is a view both
where lanes come first in memory and where they lie token by token, as such products leave them. Coefficients that all tokens share are (m, n):
with lanes first in memory, (n, tokens dim), theirs is one product of matrices.
"""

import torch
from torch import Tensor

from skipway.ops._autocast import exact


def by_token(lanes: Tensor) -> Tensor:
    """(n, ..., dim) -> (tokens, n, dim), without a copy."""
    return lanes.movedim(0, -2).reshape(-1, lanes.shape[0], lanes.shape[-1])


def as_lanes(tokens: Tensor, like: Tensor) -> Tensor:
    """(tokens, m, dim) -> (m, ..., dim), without a copy, with the token axes of `like`, (..., dim)."""
    return tokens.view(*like.shape[:-1], *tokens.shape[1:]).movedim(-2, 0)


def in_rows(lanes: Tensor, shared: bool) -> bool:
    """Whether one product of matrices does it: coefficients are the same for all tokens, and lanes come first in memory."""
    return shared and lanes.is_contiguous()


def for_tokens(matrix: Tensor, tokens: Tensor) -> Tensor:
    """(m, n) or (..., m, n) -> (tokens, m, n)."""
    if matrix.dim() == 2:
        return matrix.expand(tokens.shape[0], -1, -1)
    return matrix.reshape(-1, *matrix.shape[-2:])


def to_each(weight: Tensor, lanes: Tensor) -> Tensor:
    """(n,) or (..., n) -> (n, ..., 1), to be multiplied with a branch's result for each of the lanes, (n, ..., dim)."""
    if weight.dim() == 1:
        return weight.view(-1, *[1] * (lanes.dim() - 1))
    return weight.movedim(-1, 0).unsqueeze(-1)


def bmm(a: Tensor, b: Tensor) -> Tensor:
    """Products of small matrices, one a token, in the dtype of the operands."""
    if torch.compiler.is_compiling():           # sums over lanes, or of all channels of a token: one loop with what is around them
        return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)
    with exact(a):
        return torch.bmm(_packed(a), _packed(b))


def mm(a: Tensor, b: Tensor) -> Tensor:
    """The product of two matrices in the dtype of the operands."""
    if _few(a):
        return (a.unsqueeze(-1) * b).sum(-2)
    with exact(a):
        return torch.mm(a, b)


def mv(a: Tensor, b: Tensor) -> Tensor:
    """The product of a matrix and a vector in the dtype of the operands."""
    if _few(a):
        return (a * b).sum(-1)
    with exact(a):
        return torch.mv(a, b)


def summed(grad: Tensor, like: Tensor) -> Tensor:
    """The gradient of coefficients, from one for each token: summed where the tokens share them."""
    return grad.sum(0).view(like.shape) if grad[0].numel() == like.numel() and grad.shape[0] != 1 else grad.reshape(like.shape)


def _few(a: Tensor) -> bool:
    """Whether the sums are over a few lanes and a compiler sees them: as products and sums they become one loop with what is around them, as a call
    of torch.mm or torch.bmm they do not."""
    return torch.compiler.is_compiling() and a.shape[-1] <= 16


def _packed(matrices: Tensor) -> Tensor:
    """Matrices whose rows or columns are whole in memory: torch.bmm copies others one by one."""
    return matrices if 1 in matrices.stride()[-2:] else matrices.contiguous()
