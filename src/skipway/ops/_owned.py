"""Whether a fresh tensor may be written to in place."""

import torch
from torch import Tensor


def owned(like: Tensor) -> bool:
    """True in plain eager mode, where what an operation just made is ours. Under torch.func's transforms a fresh tensor may be narrower than what is to
    be added to it, and a compiler places its buffers itself."""
    return not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()
