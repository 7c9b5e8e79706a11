"""norm-weights-swapped: by place where the reference is a model, by name where it is a state dict."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .values import DIM, data, found, places

CODE = "SKW208"


class Loose(nn.Module):
    """Norm weights as parameters of the block: for `F.layer_norm`, or an RMSNorm by hand."""

    def __init__(self, by_hand: bool) -> None:
        super().__init__()
        self.by_hand = by_hand
        self.w1, self.w2 = (nn.Parameter(torch.rand(DIM) + 0.5) for _ in range(2))
        self.up1, self.down1, self.up2, self.down2 = (nn.Linear(DIM, DIM) for _ in range(4))

    def normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight if self.by_hand else F.layer_norm(x, (DIM,), weight)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.down1(F.gelu(self.up1(self.normed(x, self.w1))))
        return x + self.down2(F.gelu(self.up2(self.normed(x, self.w2))))


class Four(nn.Module):
    """Norms before and behind both sublayers."""

    def __init__(self, names: tuple[str, str, str, str] = ("a", "b", "c", "d")) -> None:
        super().__init__()
        self.names = names
        for name in names:
            setattr(self, name, nn.RMSNorm(DIM))
        self.attn = nn.MultiheadAttention(DIM, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))

    def forward(self, x: Tensor) -> Tensor:
        a, b, c, d = (getattr(self, name) for name in self.names)
        n = a(x)
        x = x + b(self.attn(n, n, n, need_weights=False)[0])
        return x + d(self.ffn(c(x)))


def trained(model: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=generator) * 0.1)
    return model.eval()


def fours(names: tuple[str, str, str, str] = ("a", "b", "c", "d")) -> nn.Module:
    torch.manual_seed(0)
    return trained(nn.Sequential(nn.Linear(4, DIM), Four(names), Four(names), nn.RMSNorm(DIM), nn.Linear(DIM, 3)))


def exchanged(model: nn.Module, a: str, b: str) -> nn.Module:
    """A copy in which two modules or parameters hold one another's values."""
    port = copy.deepcopy(model)
    state = port.state_dict()
    for name in [n for n in state if n == a or n.startswith(a + ".")]:
        other = b + name.removeprefix(a)
        state[name], state[other] = state[other], state[name]
    port.load_state_dict(copy.deepcopy(state))
    return port


@pytest.mark.parametrize("as_state", [False, True])
@pytest.mark.parametrize(("a", "b"), [("1.a", "1.c"), ("1.b", "1.c"), ("1.a", "2.a"), ("2.d", "3")])
def test_two_norms_exchanged(a: str, b: str, as_state: bool) -> None:
    reference = fours()
    hits = found(CODE, exchanged(reference, a, b), data(), reference=reference.state_dict() if as_state else reference)
    assert {f.where: f.values["holds"] for f in hits} == {a: b, b: a}


def test_all_shifted_by_one_layer() -> None:
    reference = fours()
    port = exchanged(reference, "1.c", "2.c")
    assert places(CODE, port, data(), reference=reference) == ["1.c", "2.c"]


def test_a_port_with_other_names_is_judged_by_places() -> None:
    reference, port = fours(), fours(("c", "a", "d", "b"))
    assert places(CODE, port, data(), reference=reference) == []
    port.load_state_dict(reference.state_dict())                # by equal names: each into a wrong place
    assert set(places(CODE, port, data(), reference=reference)) == {f"{k}.{n}" for k in (1, 2) for n in "abcd"}
    assert places(CODE, port, data(), reference=reference.state_dict()) == []


@pytest.mark.parametrize("prefix", ["", "model."])
@pytest.mark.parametrize("by_hand", [False, True])
def test_weights_that_are_no_modules_own(by_hand: bool, prefix: str) -> None:
    torch.manual_seed(0)
    reference = nn.Sequential(nn.Linear(4, DIM), Loose(by_hand), nn.Linear(DIM, 3)).eval()
    state = {prefix + name: value for name, value in reference.state_dict().items()}
    assert places(CODE, exchanged(reference, "1.w1", "1.w2"), data(), reference=state) == ["1.w1", "1.w2"]
    assert places(CODE, reference, data(), reference=state) == []


def test_a_cast_is_seen_through() -> None:
    reference = fours()
    port = exchanged(reference, "1.a", "1.c").bfloat16()
    assert places(CODE, port, data().bfloat16(), reference=reference.state_dict()) == ["1.a", "1.c"]
    assert places(CODE, port.float(), data(), reference=reference.state_dict()) == ["1.a", "1.c"]
    assert places(CODE, copy.deepcopy(reference).bfloat16(), data().bfloat16(), reference=reference) == []


def test_a_constant_that_is_not_the_fresh_one_tells() -> None:
    reference: Any = nn.Sequential(nn.Linear(4, DIM), Four(), nn.RMSNorm(DIM)).eval()
    with torch.no_grad():
        reference[1].a.weight.fill_(2.0)
    assert places(CODE, exchanged(reference, "1.a", "1.c"), data(), reference=reference) == ["1.c"]


def test_quiet_on_fresh_fine_tuned_and_no_reference() -> None:
    fresh = nn.Sequential(nn.Linear(4, DIM), Four(), nn.RMSNorm(DIM)).eval()
    assert places(CODE, fresh, data(), reference=copy.deepcopy(fresh)) == []
    reference = fours()
    assert places(CODE, trained(copy.deepcopy(reference)), data(), reference=reference) == []
    assert places(CODE, fours(), data(), reference=fresh.state_dict()) == []
    assert places(CODE, exchanged(reference, "1.a", "1.c"), data()) == []
    unloaded: Any = copy.deepcopy(reference)
    nn.init.ones_(unloaded[1].a.weight)
    with torch.no_grad():
        reference[2].a.weight.fill_(1.0)
    assert places(CODE, unloaded, data(), reference=reference) == []
