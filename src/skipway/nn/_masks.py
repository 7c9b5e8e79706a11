"""Masks of an attention, made of what a call says."""

import torch
from torch import Tensor

from skipway._errors import ShapeMismatch


def band(queries: int, keys: int, causal: bool, window: int | None, device: torch.device) -> Tensor | None:
    """(queries, keys), True where a query may look: not ahead where causal, and less than `window` tokens away; the last query is at the last key."""
    if not causal and window is None:
        return None
    away = torch.arange(queries, device=device)[:, None] + (keys - queries) - torch.arange(keys, device=device)
    seen = away >= 0 if causal else torch.ones_like(away, dtype=torch.bool)
    return seen if window is None else seen & (away.abs() < window)


def joined(masks: list[Tensor | None]) -> Tensor | None:
    """All masks at once: bool ones by and, added ones by their sum."""
    bools = [m for m in masks if m is not None and m.dtype == torch.bool]
    added = [m for m in masks if m is not None and m.dtype != torch.bool]
    seen = None
    for m in bools:
        seen = m if seen is None else seen & m
    if not added:
        return seen
    total = added[0]
    for m in added[1:]:
        total = total + m
    return total if seen is None else total.masked_fill(~seen, float("-inf"))


def checked(mask: Tensor | None, key_mask: Tensor | None) -> list[Tensor | None]:
    """A mask of (queries, keys) or (batch, heads, queries, keys), and one of (batch, keys) brought to four dimensions. Raises ShapeMismatch."""
    if mask is not None and mask.ndim not in (2, 4):
        raise ShapeMismatch(f"a mask of shape {tuple(mask.shape)}; wanted (queries, keys) or (batch, heads, queries, keys), 1 where it is shared; "
                            "a mask of (batch, keys) is key_mask")
    if key_mask is not None and (key_mask.ndim != 2 or key_mask.dtype != torch.bool):
        raise ShapeMismatch(f"a key_mask of shape {tuple(key_mask.shape)} and {key_mask.dtype}; wanted (batch, keys), bool, True for a real token")
    return [mask, None if key_mask is None else key_mask[:, None, None]]
