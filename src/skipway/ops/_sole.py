"""Whether a gradient is its backward's alone: what the backward gives may then be written over it."""

import functools
import sys
from operator import le
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from skipway.ops._mode import owned

COUNTED = hasattr(Tensor, "_use_count") and hasattr(torch._C, "_storage_Use_Count")       # not in every torch


def sole(gradient: Tensor) -> bool:
    """Whether nobody but the `backward` that asks, for one of its arguments, holds this gradient or its memory: no hook, no caller, no other node.

    Autograd's engine asks the same before it sums gradients in place. The call itself holds its arguments, too: how often is counted once on a
    gradient that nobody else holds. A debugger or a profiler in Python holds what it sees, and then the answer is no.
    """
    if not COUNTED or type(gradient) is not Tensor or not owned(gradient) or torch.is_grad_enabled() or sys.gettrace() or sys.getprofile():
        return False
    return all(map(le, _holders(gradient), _usual()))


def _holders(tensor: Tensor) -> tuple[int, ...]:
    """How often Python, libtorch, and other tensors by its memory hold a tensor."""
    return sys.getrefcount(tensor), tensor._use_count(), torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)     # type: ignore[attr-defined]


@functools.cache
def _usual() -> tuple[int, ...]:
    """`_holders` of a gradient that only its backward holds, asked as deep in calls as `sole` asks."""
    found: list[tuple[int, ...]] = []

    def ask(gradient: Tensor) -> None:
        found.append(_holders(gradient))

    class Probe(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            ask(gradient)
            return gradient
    with torch.enable_grad():
        (Probe.apply(torch.zeros(1, requires_grad=True)) * 2).backward()
    return found[0]
