"""One branch on a stream that it shares with others."""

from typing import Any

import torch

from skipway.nn._join import Join


class Sublayer(Join):
    """A branch of a `Stack`: takes the stream, gives the stream after it. Its arguments are those of `Residual`.

    It is a module of its own, so that hooks, sharding and checkpoint wrappers on `stack.layers[k]` see every pass.
    """

    def forward(self, stream: Any, compute: torch.dtype, *args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
        """The stream after this sublayer, and what else the branch returned. The branch runs in the dtype `compute`."""
        return self.step(stream, compute, args, kwargs)
