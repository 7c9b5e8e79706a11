"""What the operations on lanes share.

Lanes are (n, ..., dim). A product needs (tokens, n, dim): a view, both where lanes come first in memory and where they lie token by token, as
products leave them. Coefficients that all tokens share are (m, n) and stand for (tokens, m, n).
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


def for_tokens(matrix: Tensor, tokens: Tensor) -> Tensor:
    """(m, n) or (..., m, n) -> (tokens, m, n)."""
    if matrix.dim() == 2:
        return matrix.expand(tokens.shape[0], -1, -1)
    return matrix.reshape(-1, *matrix.shape[-2:])


def bmm(a: Tensor, b: Tensor) -> Tensor:
    """Products of small matrices, one a token, in the dtype of the operands."""
    with exact(a):
        return torch.bmm(a, b)


def summed(grad: Tensor, like: Tensor) -> Tensor:
    """The gradient of coefficients, from one for each token: summed where the tokens share them."""
    return grad.sum(0).view(like.shape) if grad[0].numel() == like.numel() and grad.shape[0] != 1 else grad.view(like.shape)
