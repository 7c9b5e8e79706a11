"""layer-scale-init: vectors on the branch against the declared start, wherever it is declared."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipway

from .values import DIM, Residual, data, found, net, places

CODE = "SKW303"


class Scale(nn.Module):
    """As timm has it."""

    def __init__(self, held: float, init_values: float, in_place: bool = False) -> None:
        super().__init__()
        self.init_values, self.in_place = init_values, in_place
        self.gamma = nn.Parameter(torch.full((DIM,), held))

    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(self.gamma) if self.in_place else x * self.gamma


def scaled(scale: nn.Module, **parts: Any) -> Residual:
    return Residual(lambda m, x: x + m.scale(m.ffn(m.norm(x))), scale=scale, **parts)


def vector(held: Tensor | float, **attributes: Any) -> Residual:
    start = held if isinstance(held, Tensor) else torch.full((DIM,), held)
    block = Residual(lambda m, x: x + m.gamma * m.ffn(m.norm(x)), gamma=nn.Parameter(start))
    for name, value in attributes.items():
        setattr(block, name, value)
    return block


def trained(model: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=generator) * 0.01)
    return model


@pytest.mark.parametrize("in_place", [False, True])
def test_a_module_that_declares_and_holds_something_else(in_place: bool) -> None:
    hits = found(CODE, net(scaled(Scale(1.0, 1e-5, in_place))), data())
    assert [(f.where, f.severity, f.values) for f in hits] == [("1.scale.gamma", "warning", {"value": 1.0, "want": 1e-5})]


@pytest.mark.parametrize("name", ["init_values", "layer_scale_init_value", "layerscale_value", "ls_init_value", "layer_scale_initial_scale"])
def test_names_of_the_declaration(name: str) -> None:
    assert places(CODE, net(vector(1.0, **{name: 1e-4})), data()) == ["1.gamma"]
    assert places(CODE, net(vector(1.0, config=SimpleNamespace(**{name: 1e-4}))), data()) == ["1.gamma"]
    assert places(CODE, net(vector(1e-4, **{name: 1e-4})), data()) == []


@pytest.mark.parametrize("held", [0.0, 1e-4, 1.01e-5])
def test_any_other_constant(held: float) -> None:
    assert places(CODE, net(vector(held, init_values=1e-5)), data()) == ["1.gamma"]


def test_random_numbers_in_an_untrained_model_and_in_a_trained_one() -> None:
    drawn = torch.randn(DIM, generator=torch.Generator().manual_seed(0)) * 0.02
    assert places(CODE, net(vector(drawn, init_values=1e-4)), data()) == ["1.gamma"]
    assert places(CODE, trained(net(vector(1e-4, init_values=1e-4))), data()) == []


@pytest.mark.parametrize(("dtype", "start"), [(torch.bfloat16, 1e-5), (torch.float16, 1e-5), (torch.float16, 1e-6), (torch.float64, 1e-6)])
def test_rounding_of_the_dtype_is_no_difference(dtype: torch.dtype, start: float) -> None:
    model = net(vector(start, init_values=start)).to(dtype)
    assert places(CODE, model, data().to(dtype)) == []


def test_expect_declares_for_all_and_overrides() -> None:
    expect = skipway.Expect(branch_init=1e-5)
    assert places(CODE, net(vector(1.0)), data(), expect=expect) == ["1.gamma"]
    assert places(CODE, net(vector(1e-5, init_values=1e-4)), data(), expect=expect) == []


@pytest.mark.parametrize("value", [None, True, "small"])
def test_no_number_declares_nothing(value: Any) -> None:
    assert places(CODE, net(vector(1.0, init_values=value)), data()) == []
    assert places(CODE, net(vector(1.0)), data()) == []
