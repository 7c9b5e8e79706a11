"""Distances between floating values, counted in units in the last place."""

import torch
from torch import Tensor

_INTEGERS = {torch.float64: torch.int64, torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}
FAR = 2**62         # a number beside one that is not finite, or another shape


def ulp_distance(a: Tensor, b: Tensor) -> int:
    """The most representable values that lie between two elements of `a` and `b`; 0 where all are equal.

    Both have one shape and one floating dtype. NaN counts as equal to NaN; +0 and -0 are equal.
    """
    if a.shape != b.shape or a.dtype != b.dtype:
        return FAR
    if a.numel() == 0 or a.dtype not in _INTEGERS:
        return 0 if torch.equal(a, b) else FAR
    x, y = _ordered(a), _ordered(b)
    nan_a, nan_b = a.isnan(), b.isnan()
    if bool((nan_a != nan_b).any()):
        return FAR
    equal = (a == b) | nan_a
    if bool(equal.all()):
        return 0
    if bool((a.isinf() != b.isinf())[~equal].any()):
        return FAR
    return int(torch.where(equal, 0, (x - y).abs()).max())


def _ordered(t: Tensor) -> Tensor:
    """Integers in the order of the floating values, one apart for neighbours."""
    kind = _INTEGERS[t.dtype]
    bits = t.detach().contiguous().view(kind).to(torch.int64)
    low = torch.iinfo(kind).min
    return torch.where(bits < 0, low - bits, bits)


def spacing(t: Tensor) -> Tensor:
    """The distance from each magnitude to the next one up, in float64."""
    info = torch.finfo(t.dtype)
    magnitude = t.detach().abs().double().clamp_min(info.smallest_normal)
    return torch.exp2(torch.floor(torch.log2(magnitude))) * info.eps
