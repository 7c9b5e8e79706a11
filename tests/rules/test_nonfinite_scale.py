"""nonfinite-scale: each lost scale once, by its own name; what only passes the NaN on, and masks, are left alone."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from .values import DIM, Residual, data, found, net, parameter, places

CODE = "SKW305"
NAN, INF = math.nan, math.inf
Run = Callable[[Any, Tensor], Tensor]

PLACES: dict[str, tuple[Run, dict[str, Any], str]] = {
    "a buffer in front of the branch": (lambda m, x: x + m.ffn(m.norm(x) * m.s), {"s": torch.tensor(NAN)}, "1.s"),
    "a scale of the branch": (lambda m, x: x + m.s * m.ffn(m.norm(x)), {"s": nn.Parameter(torch.full((DIM,), INF))}, "1.s"),
    "one element": (lambda m, x: x + m.s * m.ffn(m.norm(x)), {"s": parameter(*[1.0] * (DIM - 1), NAN)}, "1.s"),
    "a gate": (lambda m, x: x + torch.sigmoid(m.s) * m.ffn(m.norm(x)), {"s": parameter(NAN)}, "1.s"),
    "a scale of the shortcut": (lambda m, x: m.s * x + m.ffn(m.norm(x)), {"s": parameter(NAN)}, "1.s"),
    "memory of other numbers": (lambda m, x: x + m.s * m.ffn(m.norm(x)), {"s": nn.Parameter(torch.full((DIM,), 3e18))}, "1.s"),
    "memory of integers": (lambda m, x: x + m.s * m.ffn(m.norm(x)), {"s": nn.Parameter(torch.full((DIM,), 1e-41))}, "1.s"),
    "addcmul": (lambda m, x: torch.addcmul(x, m.s, m.ffn(m.norm(x))), {"s": parameter(NAN)}, "1.s"),
}


@pytest.mark.parametrize("name", PLACES)
def test_fires_on(name: str) -> None:
    run, parts, where = PLACES[name]
    hits = found(CODE, net(Residual(run, **parts), Residual(lambda m, x: x + m.ffn(m.norm(x)))), data())
    assert [f.where for f in hits] == [where]
    assert hits[0].severity == "error"


@pytest.mark.parametrize("part", ["weight", "bias"])
@pytest.mark.parametrize("k", [1, 2])
def test_a_norm_of_a_block_and_the_final_norm(part: str, k: int) -> None:
    model: Any = net(Residual(lambda m, x: x + m.ffn(m.norm(x))))
    norm = model[1].norm if k == 1 else model[2]
    with torch.no_grad():
        getattr(norm, part)[3] = NAN
    hits = found(CODE, model, data())
    assert [(f.where, f.values["holds"]) for f in hits] == [(f"1.norm.{part}" if k == 1 else f"2.{part}", "1 NaN of 16 values")]


def test_running_statistics_of_a_batch_norm() -> None:
    block = Residual(lambda m, x: x + m.ffn(m.bn(x.transpose(1, 2)).transpose(1, 2)), bn=nn.BatchNorm1d(DIM))
    block.bn.running_var.fill_(INF)
    assert places(CODE, net(block), data()) == ["1.bn.running_var"]


def test_a_norm_by_hand() -> None:
    def run(m: Any, x: Tensor) -> Tensor:
        return x + m.ffn(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * m.gain)

    assert places(CODE, net(Residual(run, gain=nn.Parameter(torch.full((DIM,), NAN)))), data()) == ["1.gain"]


def test_every_layer_and_nothing_else() -> None:
    blocks = [Residual(lambda m, x: x + m.s * m.ffn(m.norm(x)), s=torch.tensor(NAN)) for _ in range(3)]
    assert places(CODE, net(*blocks), data()) == ["1.s", "2.s", "3.s"]


QUIET: dict[str, tuple[Run, dict[str, Any]]] = {
    "zero": (lambda m, x: x + m.s * m.ffn(m.norm(x)), {"s": parameter(0.0)}),
    "tiny": (lambda m, x: x + m.s * m.ffn(m.norm(x)), {"s": parameter(1e-6)}),
    "dead channels": (lambda m, x: x + m.s * m.ffn(m.norm(x)), {"s": parameter(*[1.0] * (DIM - 1), 1e-40)}),
    "an additive mask": (lambda m, x: x + m.ffn(m.norm(x)) + m.s.clamp(min=-1e4), {"s": torch.full((DIM,), -INF)}),
    "a matrix": (lambda m, x: x + m.f(m.norm(x)), {"f": nn.Linear(DIM, DIM)}),
}


@pytest.mark.parametrize("name", QUIET)
def test_quiet_on(name: str) -> None:
    run, parts = QUIET[name]
    block = Residual(run, **parts)
    if name == "a matrix":
        nn.init.constant_(block.f.weight, NAN)
    assert places(CODE, net(block), data()) == []
