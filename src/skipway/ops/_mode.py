"""What a hand-written backward asks of the mode that it runs in."""

import torch
from torch import Tensor


def owned(like: Tensor) -> bool:
    """True in plain eager mode, where what an operation just made is ours. Under the transforms of torch.func a fresh tensor may be narrower than
    what is to be added to it, and a compiler places its buffers itself."""
    return not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()


def again() -> bool:
    """Whether a backward is itself differentiated: it then works from the inputs of its forward, for what a forward made on the way and kept
    is a constant to it. Compiled graphs have no second derivative."""
    return torch.is_grad_enabled() and not torch.compiler.is_compiling()
