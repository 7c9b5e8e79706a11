"""What `Residual` and the sublayers of a `Stack` share: a branch, its scheme, and one step of the stream."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from skipway import schemes
from skipway._errors import SchemeError, ShapeMismatch
from skipway.nn._initial import start
from skipway.nn._inner import place
from skipway.nn._paths import path
from skipway.nn.drop_path import DropPath
from skipway.schemes import Scheme


class Join(nn.Module):
    """A branch and the scheme by which its result joins a stream. Its leaves give `forward`."""

    def __init__(self, branch: nn.Module, dim: int, scheme: str | Scheme = "pre_norm", *, dropout: float = 0.0, drop_path: float = 0.0,
                 stream_dtype: torch.dtype | None = None, depth: int | None = None, index: int = 0, role: str = "", per_block: int = 2,
                 norm: Callable[[int], nn.Module] = nn.LayerNorm, init: bool = True, **options: Any) -> None:
        super().__init__()
        if isinstance(scheme, str):
            role = role or getattr(branch, "role", "other")
            scheme = schemes.build(scheme, dim, depth=depth, index=index, role=role, per_block=per_block, norm=norm, **options)
        elif options:
            raise SchemeError(f"a scheme that is built takes no options, got {', '.join(options)}; give them to its class")
        place(scheme, branch, "")
        if init:
            start(scheme, branch, "")
        self.scheme, self.branch, self.stream_dtype = scheme, branch, stream_dtype
        self.dropout = nn.Dropout(dropout) if dropout else None
        self.drop_path = DropPath(drop_path) if drop_path else None
        if stream_dtype is not None:
            self.scheme.to(stream_dtype)

    def enter(self, x: Tensor) -> Any:
        """The stream that begins with x."""
        return self.scheme.enter(x if self.stream_dtype is None else x.to(self.stream_dtype))

    def step(self, stream: Any, compute: torch.dtype, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        """The stream after this sublayer, and what else the branch returned. `compute` is the dtype that the branch gets."""
        inputs, memo = self.scheme.read(stream)
        y, extras = self.run(inputs, compute, args, kwargs)
        return self.scheme.write(stream, y, memo), extras

    def run(self, inputs: Any, compute: torch.dtype, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, tuple[Any, ...]]:
        """y of the branch, as `write` wants it, and what else the branch returned."""
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        like = given[0]
        if self.stream_dtype is not None:
            given = tuple(i.to(compute) for i in given)
        if self.drop_path is not None and self.training:
            out, restore = self.drop_path(self.branch, given, args, kwargs)
        else:
            out, restore = self.branch(*given, *args, **kwargs), None
        y, *extras = out if isinstance(out, tuple) else (out,)
        if y is None or y.shape[1:] != like.shape[1:] or (restore is None and y.shape != like.shape):
            raise _mismatch(self.branch, y, like)
        if self.dropout is not None:
            y = self.dropout(y)
        if restore is not None:
            y = restore(y)
        return (y if self.stream_dtype is None else y.to(like.dtype)), tuple(extras)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Join":
        """As in nn.Module, but a stream with a dtype of its own keeps its scheme's weights in it."""
        with left_out(self, "scheme", fn, self.stream_dtype if recurse else None):
            super()._apply(fn, recurse)
        return self

    def extra_repr(self) -> str:
        """The stream's dtype, where it has one of its own."""
        return "" if self.stream_dtype is None else f"stream in {str(self.stream_dtype).removeprefix('torch.')}"


@contextmanager
def left_out(owner: nn.Module, name: str, fn: Callable[[Tensor], Tensor], dtype: torch.dtype | None) -> Iterator[None]:
    """Hides a child that works on a stream of a dtype of its own while `fn` is applied to its owner; then applies it to the child, but for the dtype.

    Going through the other dtype and back would round its weights.
    """
    child = owner._modules.get(name)
    if dtype is None or child is None:
        yield
        return

    def kept(t: Tensor) -> Tensor:
        made = fn(t)
        return t.to(made.device) if made.dtype != t.dtype else made

    owner._modules[name] = None
    try:
        yield
        child._apply(kept)
    finally:
        owner._modules[name] = child


def _mismatch(branch: nn.Module, y: Tensor | None, x: Tensor) -> ShapeMismatch:
    name = path(branch)
    if y is None:
        return ShapeMismatch(f"{name} returned None, wanted a tensor of the shape {tuple(x.shape)} that it got; does its forward return?")
    return ShapeMismatch(f"{name} returned the shape {tuple(y.shape)} for an input of shape {tuple(x.shape)}; a branch must keep the shape of its "
                         "input, or the add would fail or broadcast; project its output to the width of the stream")
