"""stream_dtype: the stream is kept in a wider type between its first and last join; branches read it in the type that they are in."""

from typing import Any

import torch
from torch import Tensor

from skipway._errors import RewireError
from skipway.surgery._action import Action


class StreamDtype(Action):
    """Options: dtype (float32 or float64, or its name). For streams without a norm on them; on all sites of a stream."""

    whole = True

    def build(self, dtype: Any) -> None:
        kind = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
        if kind not in (torch.float32, torch.float64):
            raise RewireError(f"rewire: stream_dtype wants float32 or float64, got {dtype!r}")
        if self.spot.site.placement == "post":
            raise RewireError(f"rewire: {self.spot}: a norm stands on the stream, so it has the type that the norm gives; stream_dtype is for "
                              "pre-norm")
        if self.spot.written:
            raise RewireError(f"rewire: {self.spot} writes into its operand by a call, which cannot take another type; write it as x = x + y")
        self.options["dtype"] = str(kind).removeprefix("torch.")
        self.dtype = kind
        self.narrow = getattr(torch, self.spot.dtype)
        self.exact = kind == self.narrow

    def read(self, x: Tensor) -> Tensor:
        return x.to(self.narrow)

    def change(self, shortcut: Tensor, branch: Tensor) -> tuple[Tensor, Tensor]:
        return shortcut.to(self.dtype), branch.to(self.dtype)

    def join(self, shortcut: Tensor, branch: Tensor) -> Tensor:
        state = shortcut + branch
        return state.to(self.narrow) if self.spot.site.index == self.spot.sites - 1 else state
