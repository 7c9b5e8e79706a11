"""One branch on a stream."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from skipway import schemes
from skipway._errors import SchemeError, ShapeMismatch
from skipway.nn._initial import start
from skipway.nn._paths import path
from skipway.schemes import Scheme


class Residual(nn.Module):
    """A branch F and the rule by which its result joins the stream: leave(write(s, F(read(s)))) with s = enter(x).

    branch          any module; it gets what the scheme reads and the arguments of the call, and returns y or a tuple (y, ...)
    dim             width of x, (..., dim)
    scheme          name of a scheme, or a scheme that is built
    dropout         probability of dropping single elements of y
    stream_dtype    dtype of the stream; None keeps that of x. The branch runs in the dtype of x.
    depth, index, role, per_block, norm, options    as in `skipway.schemes.Scheme`
    init            whether the branch's weights are brought to the start that the scheme asks for

    `nn.Residual(branch, dim)` is x + F(N(x)); `nn.Residual(branch, dim, "post_norm")` is N(x + F(x)).
    Raises SchemeError when built (unknown scheme or option, missing depth) and ShapeMismatch at a call whose branch gives None or another shape.
    """

    def __init__(self, branch: nn.Module, dim: int, scheme: str | Scheme = "pre_norm", *, dropout: float = 0.0, stream_dtype: torch.dtype | None = None,
                 depth: int | None = None, index: int = 0, role: str = "", per_block: int = 2, norm: Callable[[int], nn.Module] = nn.LayerNorm,
                 init: bool = True, **options: Any) -> None:
        super().__init__()
        if isinstance(scheme, str):
            role = role or getattr(branch, "role", "other")
            scheme = schemes.build(scheme, dim, depth=depth, index=index, role=role, per_block=per_block, norm=norm, **options)
        elif options:
            raise SchemeError(f"a scheme that is built takes no options, got {', '.join(options)}; give them to its class")
        if init:
            start(scheme, branch, "")
        self.scheme, self.branch, self.stream_dtype = scheme, branch, stream_dtype
        self.dropout = nn.Dropout(dropout) if dropout else None

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """x with the branch joined, and what else the branch returned."""
        stream, extras = self.step(self.enter(x), *args, compute=x.dtype, **kwargs)
        y = self.scheme.leave(stream).to(x.dtype)
        return (y, *extras) if extras else y

    def enter(self, x: Tensor) -> Any:
        """The stream that begins with x."""
        return self.scheme.enter(x if self.stream_dtype is None else x.to(self.stream_dtype))

    def step(self, stream: Any, *args: Any, compute: torch.dtype | None = None, **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
        """The stream after this sublayer, and what else the branch returned. `compute` is the dtype that the branch gets."""
        inputs, memo = self.scheme.read(stream)
        y, extras = self._run(inputs, compute, args, kwargs)
        return self.scheme.write(stream, y, memo), extras

    def _run(self, inputs: Any, compute: torch.dtype | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, tuple[Any, ...]]:
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        wide = given[0].dtype
        if self.stream_dtype is not None and compute is not None:
            given = tuple(i.to(compute) for i in given)
        out = self.branch(*given, *args, **kwargs)
        y, *extras = out if isinstance(out, tuple) else (out,)
        if y is None or y.shape != given[0].shape:
            raise _mismatch(self, y, given[0])
        if self.dropout is not None:
            y = self.dropout(y)
        return (y if self.stream_dtype is None else y.to(wide)), tuple(extras)

    def extra_repr(self) -> str:
        """The stream's dtype, where it has one of its own."""
        return "" if self.stream_dtype is None else f"stream in {str(self.stream_dtype).removeprefix('torch.')}"


def _mismatch(residual: Residual, y: Tensor | None, x: Tensor) -> ShapeMismatch:
    name = path(residual.branch)
    if y is None:
        return ShapeMismatch(f"{name} returned None, wanted a tensor of the shape {tuple(x.shape)} that it got; does its forward return?")
    return ShapeMismatch(f"{name} returned the shape {tuple(y.shape)} for an input of shape {tuple(x.shape)}; a branch must keep the shape of its input, "
                         "or the add would fail or broadcast; project its output to the width of the stream")
