"""Many linear maps, each on its own rows."""

import torch
import torch.nn.functional as F
from torch import Tensor


def grouped_linear(x: Tensor, weight: Tensor, counts: Tensor) -> Tensor:
    """Row r of the result is W_e x_r, with e the group that row r lies in.

    x (rows, in), sorted by group; weight (groups, out, in); counts (groups), integers that sum to rows. A group without rows gets a gradient of zero.
    Under torch.compile it is one operation of the graph, since its inner shapes depend on the counts.
    """
    return _opaque(x, weight, counts) if torch.compiler.is_compiling() else _loop(x, weight, counts)


def _loop(x: Tensor, weight: Tensor, counts: Tensor) -> Tensor:
    return torch.cat([F.linear(part, w) for part, w in zip(x.split(counts.tolist()), weight)])


@torch.library.custom_op("skipway::grouped_linear", mutates_args=())
def _opaque(x: Tensor, weight: Tensor, counts: Tensor) -> Tensor:
    return _loop(x, weight, counts)


@_opaque.register_fake
def _(x: Tensor, weight: Tensor, counts: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[1])


@torch.library.custom_op("skipway::grouped_outer", mutates_args=())
def _outer(left: Tensor, right: Tensor, counts: Tensor) -> Tensor:
    """(groups, out, in): the sum over each group's rows of left_r right_r^T."""
    sizes = counts.tolist()
    return torch.stack([a.T @ b for a, b in zip(left.split(sizes), right.split(sizes))])


@_outer.register_fake
def _(left: Tensor, right: Tensor, counts: Tensor) -> Tensor:
    return left.new_empty(counts.shape[0], left.shape[1], right.shape[1])


def _keep(ctx, inputs, output):  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _backward(ctx, gradient):  # type: ignore[no-untyped-def]
    x, weight, counts = ctx.saved_tensors
    gradient = gradient.contiguous()
    return _opaque(gradient, weight.transpose(1, 2).contiguous(), counts), _outer(gradient, x, counts), None


_opaque.register_autograd(_backward, setup_context=_keep)
