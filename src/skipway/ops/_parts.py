"""Products of a few rows with wide ones: a CPU does them faster as several side by side, each of a part of the width."""

import torch
from torch import Tensor

from skipway.ops._autocast import exact
from skipway.ops._mode import owned

PARTS = 4


def across(rows: Tensor, wide: Tensor) -> Tensor:
    """rows @ wide.mT, (k, width) and (m, width) -> (k, m), in the dtype of the operands."""
    with exact(wide):
        if not _divides(wide):
            return rows @ wide.mT
        return torch.bmm(_parts(rows), _parts(wide).mT).sum(0)


def down(rows: Tensor, wide: Tensor) -> Tensor:
    """rows @ wide, (k, m) and (m, width) -> (k, width), in the dtype of the operands."""
    with exact(wide):
        if not _divides(wide):
            return rows @ wide
        return torch.bmm(rows.expand(PARTS, -1, -1), _parts(wide)).transpose(0, 1).reshape(len(rows), -1)


def _divides(wide: Tensor) -> bool:
    return wide.device.type == "cpu" and wide.shape[1] % PARTS == 0 and owned(wide)


def _parts(rows: Tensor) -> Tensor:
    """(k, width) -> (PARTS, k, width / PARTS)."""
    return rows.view(len(rows), PARTS, -1).transpose(0, 1)
