"""Statistics of one join, worked out on the device and read off once at the end.

b batch and token rows, d features; all in float32, or float64 where the model is.
"""

import torch
from torch import Tensor

TOKENS = 128        # rows that the effective rank looks at


def rows(t: Tensor, axis: int) -> Tensor:
    """(..., d, ...) as (b, d) in float32 or wider, detached."""
    t = t.detach()
    kind = torch.float64 if t.dtype == torch.float64 else torch.float32
    return t.movedim(axis, -1).reshape(-1, t.shape[axis]).to(kind)


def join_statistics(x: Tensor, b: Tensor, y: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Nine numbers of shortcut x, write b and sum y, in the order of `NAMES`, and the Gram matrix of some token rows of y.

    x, b, y have one shape. Cosines are means over rows; a row of zeros has cosine 1 with itself and 0 with others.
    """
    rounded = ((b != 0) & (y == x)).sum() / (b != 0).sum().clamp_min(1)
    bad = (~y.isfinite()).sum()
    x, b, y = rows(x, axis), rows(b, axis), rows(y, axis)
    xx, bb, yy = (x * x).sum(-1), (b * b).sum(-1), (y * y).sum(-1)
    tiny = torch.finfo(x.dtype).tiny
    with_branch = ((x * b).sum(-1) / (xx * bb).sqrt().clamp_min(tiny)).mean()
    same = (xx == 0) & (yy == 0)
    along = torch.where(same, torch.ones_like(xx), (x * y).sum(-1) / (xx * yy).sqrt().clamp_min(tiny)).clamp(-1, 1)
    peaks = y.abs().amax(0)
    largest, channel = peaks.max(0)
    size = x.shape[-1]
    numbers = [(xx.mean() / size).sqrt(), (yy.mean() / size).sqrt(), (bb.mean() / size).sqrt(), with_branch, (1 - along).mean(),
               (along.arccos() / torch.pi).mean(), rounded, largest, channel, bad]
    step = max(1, -(-y.shape[0] // TOKENS))
    some = y[::step].double()                           # squares of small singular values need the digits
    return torch.stack([n.to(torch.float64) for n in numbers]), some @ some.T


NAMES = ("before", "after", "branch", "cosine", "influence", "angle", "rounded", "largest", "channel", "nonfinite")


def effective_ranks(grams: list[Tensor]) -> list[float]:
    """exp(entropy of s / sum(s)) for the singular values s behind each Gram matrix; matrices of one size go together."""
    found = [float("nan")] * len(grams)
    sizes: dict[tuple[int, ...], list[int]] = {}
    for i, gram in enumerate(grams):
        sizes.setdefault(tuple(gram.shape), []).append(i)
    for members in sizes.values():
        stack = torch.stack([grams[i] for i in members])
        fine = stack.isfinite().flatten(1).all(1)
        values = torch.linalg.eigvalsh(torch.where(fine[:, None, None], stack, torch.zeros_like(stack))).clamp_min(0).sqrt()
        share = values / values.sum(-1, keepdim=True).clamp_min(1e-300)
        entropy = -(share * share.clamp_min(1e-300).log()).sum(-1)
        for i, rank, ok in zip(members, entropy.exp().tolist(), fine.tolist(), strict=True):
            if ok:
                found[i] = rank
    return found
