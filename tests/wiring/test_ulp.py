"""Distances in units in the last place, against torch's own neighbours."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skipway.wiring.ulp import FAR, spacing, ulp_distance


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@given(x=st.floats(-(2.0**100), 2.0**100, width=32), steps=st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_neighbours(dtype: torch.dtype, x: float, steps: int) -> None:
    a = b = torch.tensor([x], dtype=dtype)
    for _ in range(steps):
        b = torch.nextafter(b, torch.tensor([float("inf")], dtype=dtype))
    assert ulp_distance(a, b) == ulp_distance(b, a) == steps


def test_special_values() -> None:
    nan, inf = float("nan"), float("inf")
    assert ulp_distance(torch.tensor([nan, inf, 0.0]), torch.tensor([nan, inf, -0.0])) == 0
    assert ulp_distance(torch.tensor([nan]), torch.tensor([1.0])) == FAR
    assert ulp_distance(torch.tensor([inf]), torch.tensor([1.0])) == FAR
    assert ulp_distance(torch.zeros(2), torch.zeros(3)) == FAR
    assert ulp_distance(torch.zeros(2), torch.zeros(2).double()) == FAR
    assert ulp_distance(torch.tensor([1.0], dtype=torch.bfloat16), torch.tensor([1.0 + 2**-7], dtype=torch.bfloat16)) == 1


@given(x=st.floats(1e-20, 1e20))
@settings(max_examples=60, deadline=None)
def test_spacing(x: float) -> None:
    t = torch.tensor([x], dtype=torch.float32)
    up = torch.nextafter(t, torch.tensor([float("inf")]))
    assert float(spacing(t)) == float(up.double() - t.double())
