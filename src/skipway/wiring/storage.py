"""Which elements of a shared storage two tensors have in common."""

import torch
from torch import Tensor

MOST_EXACT = 1 << 24        # storage ranges beyond this many elements count as shared where they meet


def overlap(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one group share an element."""
    first, second = sorted((t.storage_offset(), t.storage_offset() + _extent(t)) for t in (a, b))
    if second[0] >= first[1]:
        return False
    if (dense(a) and dense(b)) or first[1] - first[0] + second[1] - second[0] > MOST_EXACT:
        return True
    start = first[0]
    taken = torch.zeros(max(first[1], second[1]) - start, dtype=torch.bool)
    taken.as_strided(a.shape, a.stride(), a.storage_offset() - start).fill_(True)
    return bool(taken.as_strided(b.shape, b.stride(), b.storage_offset() - start).any())


def dense(t: Tensor) -> bool:
    """Whether a tensor fills its range of the storage."""
    return t.numel() == _extent(t)


def _extent(t: Tensor) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) if t.numel() else 0
