"""What a hand-written backward asks of the mode that it runs in."""

import functools
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


def owned(like: Tensor) -> bool:
    """True in plain eager mode, where what an operation just made is ours. Under the transforms of torch.func a fresh tensor may be narrower than
    what is to be added to it, and a compiler places its buffers itself."""
    return not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()


def again() -> bool:
    """Whether a backward is itself differentiated: it then works from the inputs of its forward, for what a forward made on the way and kept
    is a constant to it. Compiled graphs have no second derivative."""
    return torch.is_grad_enabled() and not torch.compiler.is_compiling()


def batched() -> bool:
    """Whether autograd runs a backward for many gradients at once (`is_grads_batched`): its batched tensors lack detach, and some sums in place."""
    return bool(torch._C._dispatch_tls_is_dispatch_key_included("VmapMode"))


def run(rule: type[Function], *inputs: Any) -> Any:
    """`rule.apply(*inputs)`. In plain eager mode by a twin that sets its context up inside forward, which autograd calls three times as fast."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return rule.apply(*inputs)
    return _twin(rule).apply(*inputs)


@functools.cache
def _twin(rule: type[Function]) -> type[Function]:
    forward, setup = rule.forward, rule.setup_context

    def both(ctx: Any, *inputs: Any) -> Any:
        output = forward(*inputs)
        setup(ctx, inputs, output)
        return output
    return type(rule.__name__, (Function,), {"forward": staticmethod(both), "backward": staticmethod(rule.backward), "__doc__": rule.__doc__})
