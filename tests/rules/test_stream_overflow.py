"""stream-overflow: the first add that overflows, in the deployed dtype."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipway

from .values import DIM, found, places

CODE = "SKW701"


class Step(nn.Module):
    """Adds `size` to every element, through a branch that reads the stream."""

    def __init__(self, size: float, join: str = "add", width: int = DIM) -> None:
        super().__init__()
        self.norm, self.up, self.down, self.join = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width), join
        nn.init.zeros_(self.down.weight)
        nn.init.constant_(self.down.bias, size)

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(torch.relu(self.up(self.norm(x * 1e-30 if self.join == "vast" else x))))
        if self.join == "in place":
            return x.clone().add_(y)
        if self.join == "alpha":
            return torch.add(x, y, alpha=1)
        if self.join == "stack":
            return torch.stack([x, y]).sum(0)
        if self.join == "clamped":
            return (x.float() + y.float()).clamp(-6e4, 6e4).to(x.dtype)
        return x + y


def steps(*sizes: float, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, DIM), *[Step(size, **options) for size in sizes], nn.LayerNorm(DIM)).eval()


X = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("join", ["add", "in place", "alpha", "stack"])
def test_the_first_place_alone(join: str) -> None:
    hits = found(CODE, steps(3e4, 3e4, 3e4, 3e4, join=join).half(), X.half(), dtype="float16")
    assert [f.where for f in hits] == ["3.down"]
    assert hits[0].severity == "error"
    assert hits[0].values["elements"] == 2 * 3 * DIM and hits[0].values["limit"] == 65504.0 and hits[0].values["dtype"] == "float16"


def test_negative_infinity_and_single_elements() -> None:
    model: Any = steps(-6e4, -6e4)
    with torch.no_grad():
        model[2].down.bias[1:] = 0.0
    hits = found(CODE, model, X, dtype="float16")
    assert [(f.where, f.values["elements"]) for f in hits] == [("2.down", 6)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_only_in_the_dtype_that_overflows(dtype: str) -> None:
    assert places(CODE, steps(3e4, 3e4, 3e4), X, dtype=dtype) == []
    assert places(CODE, steps(3e4, 3e4, 3e4), X) == []
    assert places(CODE, steps(3e4, 3e4, 3e4), X, dtype="float16") == ["3.down"]


def test_sixteen_bit_weights_run_in_their_own_type() -> None:
    assert places(CODE, steps(3e4, 3e4, 3e4).bfloat16(), X.bfloat16(), dtype="float16") == []
    assert places(CODE, steps(3e4, 3e4, 3e4).half(), X.half()) == ["3.down"]


def test_a_clamp_keeps_it_finite() -> None:
    assert places(CODE, steps(3e4, 3e4, 3e4, join="clamped"), X, dtype="float16") == []


def test_a_branch_that_is_infinite_itself_is_another_fault() -> None:
    model: Any = steps(1.0, 1.0)
    with torch.no_grad():
        model[1].up.bias.fill_(6e4)
        model[1].down.weight.fill_(1.0)
    assert places(CODE, model, X, dtype="float16") == []


def test_float32_overflows_too() -> None:
    report = skipway.check(steps(3e38, 3e38, join="vast"), X, stage="values", select=[CODE])
    assert [f.where for f in report.findings] == ["2.down"] and report.findings[0].values["dtype"] == "float32"


def test_each_stream_has_its_first_place() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = steps(4e4, 4e4, 4e4), steps(4e4, 4e4)

        def forward(self, x: Tensor) -> Tensor:
            return self.a(x) + self.b(x * 0.5)

    assert sorted(places(CODE, Two().eval(), X, dtype="float16")) == ["a.2.down", "b.2.down"]
