"""Products in parts are the products."""

import pytest
import torch
from torch.testing import assert_close

from skipway.ops._parts import PARTS, across, down


@pytest.mark.parametrize("width", [PARTS, 3 * PARTS, 3 * PARTS + 1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_products_in_parts(width: int, dtype: torch.dtype) -> None:
    rows, wide, few = torch.randn(3, width, dtype=dtype), torch.randn(5, width, dtype=dtype), torch.randn(3, 5, dtype=dtype)
    with torch.autocast("cpu", torch.bfloat16):             # which they do not heed
        found = across(rows, wide), down(few, wide)
    for got, want in zip(found, (rows.double() @ wide.double().mT, few.double() @ wide.double())):
        assert got.dtype == dtype
        assert_close(got.double(), want, rtol=1e-6 if dtype == torch.float32 else 1e-12, atol=1e-6 if dtype == torch.float32 else 1e-12)
