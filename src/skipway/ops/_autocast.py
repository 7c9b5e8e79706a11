"""Gates and mixers keep the precision of their operands, whatever autocast would make of their products."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

NOTHING = nullcontext()


def exact(like: Tensor) -> AbstractContextManager[object]:
    """Products inside are in the dtype of their operands, under autocast, too."""
    if not torch._C._is_any_autocast_enabled():
        return NOTHING
    kind = like.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else NOTHING


def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in the dtype of its operands."""
    with exact(a):
        return a @ b
