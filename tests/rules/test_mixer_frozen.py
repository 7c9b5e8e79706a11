"""mixer-frozen: mixers that do not move with their parameters, however they are made; those that move, if little, are quiet."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from .training import DIM, Net, data, ffn, found, places

CODE = "SKW802"
LANES = 4


def sinkhorn(z: Tensor) -> Tensor:
    for _ in range(10):
        z = z - z.logsumexp(-1, keepdim=True)
        z = z - z.logsumexp(-2, keepdim=True)
    return z.exp()


class Layer(nn.Module):
    """Lanes are (batch, lane, token, channel); `mixer(self, lanes)` mixes them."""

    def __init__(self, start: Tensor, mixer: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.norm, self.ffn, self.mixer = nn.LayerNorm(DIM), ffn(), mixer
        self.res, self.dynamic = nn.Parameter(start.clone()), nn.Linear(DIM, LANES * LANES, bias=False)
        self.scale, self.write = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.ones(LANES))

    def forward(self, lanes: Tensor) -> Tensor:
        y = self.ffn(self.norm(lanes.mean(1)))
        mixer = self.mixer(self, lanes)
        rule = "ij,bjtc->bitc" if mixer.dim() == 2 else "btij,bjtc->bitc"
        return torch.einsum(rule, mixer, lanes) + self.write[:, None, None] * y[:, None]


def lanes(start: Tensor, mixer: Callable[[Any, Tensor], Tensor]) -> nn.Module:
    def through(m: Any, x: Tensor) -> Tensor:
        x = x[:, None].repeat(1, LANES, 1, 1)
        for block in m.blocks:
            x = block(x)
        return x.mean(1)

    return Net(lambda: Layer(start, mixer), 2, through)


def moved(m: Any, x: Tensor) -> Tensor:
    made: Tensor = m.scale * torch.tanh(m.dynamic(m.norm(x.mean(1)))).unflatten(-1, (LANES, LANES))
    return made


def untracked(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        return m.res.softmax(-1)


EYE = torch.eye(LANES)
CORNER = 8 * EYE - 8
FROZEN: dict[str, tuple[Tensor, Callable[[Any, Tensor], Tensor]]] = {
    "sinkhorn at a low temperature": (CORNER, lambda m, x: sinkhorn(m.res / 0.05)),
    "softmax at a low temperature": (CORNER, lambda m, x: (m.res / 0.05).softmax(-1)),
    "sigmoid": (80 * EYE - 40, lambda m, x: torch.sigmoid(m.res)),
    "clamped": (3 * EYE - 1, lambda m, x: m.res.clamp(0, 1)),
    "rounded": (EYE * 0.9, lambda m, x: m.res.round()),
    "with an input-dependent part": (200 * EYE, lambda m, x: (m.res + moved(m, x)).softmax(-1)),
    "without a gradient": (CORNER, untracked),
}
MOVING: dict[str, tuple[Tensor, Callable[[Any, Tensor], Tensor]]] = {
    "as it is stored": (EYE, lambda m, x: m.res),
    "sinkhorn at temperature 1": (CORNER, lambda m, x: sinkhorn(m.res)),
    "softmax": (EYE, lambda m, x: m.res.softmax(-1)),
    "an input-dependent part whose scale is zero": (EYE, lambda m, x: m.res + moved(m, x)),
    "an input-dependent part alone, whose scale is zero": (EYE, lambda m, x: torch.eye(LANES) + moved(m, x)),
    "straight-through": (EYE * 0.9, lambda m, x: m.res + (m.res.round() - m.res).detach()),
}


@pytest.mark.parametrize("name", FROZEN)
def test_fires_on(name: str) -> None:
    hits = found(CODE, lanes(*FROZEN[name]), data())
    assert [h.where for h in hits] == ["blocks.0.res", "blocks.1.res"]
    assert hits[0].severity == "error" and hits[0].values["lanes"] == LANES
    assert hits[0].values["derivative"] <= 1e-6 and "blocks.0.res" in hits[0].values["parameters"]


@pytest.mark.parametrize("name", MOVING)
def test_quiet_on(name: str) -> None:
    assert places(CODE, lanes(*MOVING[name]), data()) == []


def test_equal_lanes_make_the_loss_blind_and_are_quiet() -> None:
    """All lanes are copies at the start, so the loss has no gradient for a mixer whose rows sum to one."""
    model = lanes(EYE, lambda m, x: m.res.softmax(-1))
    model(data()).square().sum().backward()
    assert float(model.blocks[0].res.grad.abs().max()) < 1e-5
    assert places(CODE, model, data()) == []


def test_a_mixer_that_is_not_to_be_trained_is_quiet() -> None:
    model = lanes(CORNER, lambda m, x: (m.res / 0.05).softmax(-1))
    for block in model.blocks:
        block.res.requires_grad_(False)
    assert places(CODE, model, data()) == []
