"""Stochastic depth that saves the work: a branch runs on the samples that are kept."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import SchemeError, ShapeMismatch
from skipway.nn._paths import path
from skipway.nn._routing import gives


class DropPath(nn.Module):
    """In training, y = b F(x) / (1 - p) with b drawn from Bernoulli(1 - p) for each sample; F runs on the samples with b = 1 only. In eval, F(x).

    p       probability that a sample is dropped, 0 <= p < 1

    The samples are the first dimension of x, (batch, ..., dim). Where none is kept, F runs on the first sample and the result counts nothing, so
    that every parameter gets a gradient and no process of a group waits for another. F runs on all samples, and the dropped results are
    multiplied by zero, under torch.compile, whose shapes are fixed, and where later branches need what F gives besides y.

    Keyword arguments with one row a sample are cut, too: F says which, by name and number of dimensions, in its attribute `per_sample`, for instance
    {"context": 3, "mask": 4}; a mask of two dimensions is then shared by all samples. Raises ShapeMismatch where a tensor as long as
    the batch is not declared, since a wrong guess would pair samples with the rows of others.
    Source: Huang et al., Deep Networks with Stochastic Depth, 2016, arXiv 1603.09382.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise SchemeError(f"drop_path is {p}; wanted a probability of at least 0 and below 1")
        self.p = p

    def forward(self, branch: nn.Module, given: tuple[Tensor, ...], args: tuple[Any, ...],
                kwargs: dict[str, Any]) -> tuple[Any, Callable[[Tensor], Tensor]]:
        """What the branch returned for the kept samples, and the function that puts its y back among all samples."""
        batch = given[0].shape[0]
        if given[0].ndim < 2:
            raise ShapeMismatch(f"drop_path drops samples, and {path(branch)} got the shape {tuple(given[0].shape)}; wanted (batch, ..., dim)")
        # Drawn where the inputs are only on a processor: elsewhere, asking how many are kept would wait for the device.
        kept = torch.empty(batch, dtype=given[0].dtype).bernoulli_(1 - self.p)
        if torch.compiler.is_compiling() or gives(branch):
            return branch(*given, *args, **kwargs), lambda y: y * _column(kept / (1 - self.p), y)
        rows = kept.nonzero().flatten()
        scale = 1 / (1 - self.p) if len(rows) else 0.0
        rows = (rows if len(rows) else rows.new_zeros(1)).to(given[0].device)
        args, kwargs = _cut(branch, args, kwargs, batch, rows)
        out = branch(*(v.index_select(0, rows) for v in given), *args, **kwargs)
        return out, lambda y: y.new_zeros((batch, *y.shape[1:])).index_copy(0, rows, y * scale)

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p:.4g}"


def _column(values: Tensor, y: Tensor) -> Tensor:
    return values.to(y).reshape(-1, *(1 for _ in y.shape[1:]))


def _cut(branch: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], batch: int, rows: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the kept samples."""
    told: Mapping[str, int] = getattr(branch, "per_sample", {})
    made = {}
    for name, value in (*((str(k), v) for k, v in enumerate(args)), *kwargs.items()):
        if isinstance(value, Tensor) and value.ndim and value.shape[0] == batch:
            if name not in told:
                raise ShapeMismatch(f"drop_path cuts {path(branch)} to some samples, and its argument {name} of shape {tuple(value.shape)} is as "
                                    f"long as the batch of {batch}; say whether it has a row a sample: per_sample = {{{name!r}: {value.ndim}}} in "
                                    "the branch, or 0 if it has not")
            value = value.index_select(0, rows) if value.ndim == told[name] else value
        made[name] = value
    return tuple(made[str(k)] for k in range(len(args))), {k: made[k] for k in kwargs}
