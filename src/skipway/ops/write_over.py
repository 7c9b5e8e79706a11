"""write_over: write_lanes on mixed lanes that nobody else wants, over them where that is safe."""

from typing import Any

from torch import Tensor
from torch.autograd import Function

from skipway.ops._lanes import to_each
from skipway.ops._mode import owned, run
from skipway.ops.write_lanes import Write


def write_over(mixed: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """mixed_j + weight_j y.

    mixed (n, ..., dim), as `read_mix` gives it, y (..., dim); weight (n,), or (..., n). Gives lanes, (n, ..., dim), in the dtype of mixed, which
    is no longer what it was: in plain eager mode the sum is written over it.
    """
    made: Tensor = run(_Over if owned(mixed) else Write, mixed, y.to(mixed.dtype), weight.to(mixed.dtype))
    return made


class _Over(Function):
    @staticmethod
    def forward(mixed: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return mixed.addcmul_(to_each(weight, mixed), y)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(*inputs[1:])

    backward = Write.backward
