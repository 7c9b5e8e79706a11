"""drop-path-scale: the mean factor on a branch in training against the one in evaluation, for every way to draw and to rescale."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .training import DIM, Block, Net, data, ffn, found, places, plain

CODE = "SKW403"
RATE, KEEP = 0.3, 0.7


def coin(x: Tensor) -> Tensor:
    return torch.rand(x.size(0), 1, 1) < KEEP


class DropPath(nn.Module):
    """`training_run(x)` in training, `factor * x` in evaluation."""

    def __init__(self, drop: Callable[[Tensor], Tensor], factor: float = 1.0) -> None:
        super().__init__()
        self.drop, self.factor = drop, factor

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return self.drop(x)
        return x if self.factor == 1 else x * self.factor


def run(m: Any, x: Tensor) -> Tensor:
    x = x + m.drop_path(m.attn(m.norm1(x)))
    return x + m.drop_path(m.ffn(m.norm2(x)))


def net(drop: Callable[[Tensor], Tensor], factor: float = 1.0) -> nn.Module:
    return Net(lambda: Block(run, drop_path=DropPath(drop, factor)), 2)


FAULTS: dict[str, tuple[Callable[[Tensor], Tensor], float, float]] = {
    "never rescaled": (lambda x: x * coin(x), 1.0, KEEP),
    "divided twice": (lambda x: x / KEEP * (coin(x) / KEEP), 1.0, 1 / KEEP),
    "divided by the rate": (lambda x: x * coin(x) / RATE, 1.0, KEEP / RATE),
    "rescaled in both modes": (lambda x: x / KEEP * coin(x), KEEP, 1.0),
    "the rate in evaluation": (lambda x: x * coin(x), RATE, KEEP),
    "kept where it should be dropped": (lambda x: x * (torch.rand(x.size(0), 1, 1) + RATE).floor() / KEEP, 1.0, RATE / KEEP),
    "where": (lambda x: torch.where(coin(x), x, torch.zeros(())), 1.0, KEEP),
    "masked fill": (lambda x: x.masked_fill(~coin(x), 0.0), 1.0, KEEP),
    "bernoulli": (lambda x: x * x.new_empty(x.size(0), 1, 1).bernoulli_(KEEP), 1.0, KEEP),
    "drop-out by hand": (lambda x: x * (torch.rand_like(x) < KEEP), 1.0, KEEP),
    "in place": (lambda x: x.mul_(coin(x)), 1.0, KEEP),
}
QUIET: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "rescaled": (lambda x: x * coin(x) / KEEP, 1.0),
    "rescaled before": (lambda x: x.div(KEEP) * coin(x), 1.0),
    "rescaled mask": (lambda x: x * x.new_empty(x.size(0), 1, 1).bernoulli_(KEEP).div_(KEEP), 1.0),
    "a factor in evaluation": (lambda x: x * coin(x), KEEP),
    "where": (lambda x: torch.where(coin(x), x / KEEP, torch.zeros(())), 1.0),
    "drop-out": (lambda x: F.dropout(x, RATE), 1.0),
    "drop-out of ones": (lambda x: x * F.dropout(torch.ones(x.size(0), 1, 1), RATE), 1.0),
    "alpha drop-out adds what it takes": (lambda x: F.alpha_dropout(x, RATE, True), 1.0),
    "gaussian": (lambda x: x * (1 + 0.3 * torch.randn_like(x)), 1.0),
    "a gate of two numbers": (lambda x: x * _shake(x), KEEP),
}


def _shake(x: Tensor) -> Tensor:
    gate, alpha = torch.empty(1).bernoulli_(KEEP), torch.empty(x.size(0), 1, 1).uniform_(-1, 1)
    return gate + alpha - gate * alpha


@pytest.mark.parametrize("name", FAULTS)
def test_fires_on(name: str) -> None:
    drop, factor, mean = FAULTS[name]
    hits = found(CODE, net(drop, factor), data())
    assert [h.where for h in hits] == ["blocks.0.drop_path", "blocks.1.drop_path"]
    assert hits[0].severity == "error"
    assert hits[0].values["training"] == pytest.approx(mean, rel=0.01)
    assert hits[0].values["evaluation"] == pytest.approx(factor)


@pytest.mark.parametrize("name", QUIET)
def test_quiet_on(name: str) -> None:
    drop, factor = QUIET[name]
    assert places(CODE, net(drop, factor), data()) == []


# what the interpreter draws

COINS: dict[str, tuple[Callable[[Tensor], Tensor], float, bool]] = {
    "rescaled": (lambda x: x / KEEP if random.random() < KEEP else torch.zeros_like(x), 1.0, False),
    "rescaled, torch": (lambda x: x / KEEP if torch.rand(()).item() < KEEP else x * 0.0, 1.0, False),
    "a factor in evaluation": (lambda x: x if random.random() < KEEP else x * 0.0, KEEP, False),
    "never rescaled": (lambda x: x if random.random() < KEEP else x * 0.0, 1.0, True),
    "never rescaled, torch": (lambda x: x if torch.rand(()).item() < KEEP else torch.zeros_like(x), 1.0, True),
    "rescaled in both modes": (lambda x: x / KEEP if random.random() < KEEP else x * 0.0, 0.5, True),
}


@pytest.mark.parametrize("name", COINS)
def test_numbers_that_the_interpreter_draws(name: str) -> None:
    drop, factor, faulty = COINS[name]
    assert bool(places(CODE, net(drop, factor), data())) is faulty


def test_numpys_coin() -> None:
    hits = places(CODE, net(lambda x: x if np.random.rand() < KEEP else x * 0.0), data())
    assert [hit.removesuffix(".drop_path") for hit in hits] == ["blocks.0", "blocks.1"]      # a run that kept the path does not show the module


class Original(nn.Module):
    """Stochastic depth as in the first paper: the block is left out, and weighed by its survival probability in evaluation."""

    def __init__(self, weighed: bool) -> None:
        super().__init__()
        self.norm, self.ffn, self.survival_prob, self.weighed = nn.LayerNorm(DIM), ffn(), 0.6, weighed

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x + (self.survival_prob if self.weighed else 1.0) * self.ffn(self.norm(x))
        if torch.equal(torch.empty(1).bernoulli_(self.survival_prob), torch.ones(1)):
            return x + self.ffn(self.norm(x))
        return x


def test_blocks_that_are_left_out() -> None:
    assert places(CODE, Net(lambda: Original(True)), data()) == []
    hits = found(CODE, Net(lambda: Original(False)), data())
    assert [h.where for h in hits] == ["blocks.0", "blocks.1", "blocks.2"]
    assert all(h.values["training"] == pytest.approx(0.6, abs=0.25) and h.values["evaluation"] == 1 for h in hits)


def test_layerdrop_never_rescales() -> None:
    def through(m: Any, x: Tensor) -> Tensor:
        for block in m.blocks:
            if not (m.training and random.random() < 0.5):
                x = block(x)
        return x

    model = Net(lambda: Block(plain), through=through)
    model.layerdrop = 0.5
    assert places(CODE, model, data()) == []


def test_a_mask_inside_the_add() -> None:
    def added(rescale: bool) -> Callable[[Any, Tensor], Tensor]:
        def run(m: Any, x: Tensor) -> Tensor:
            y = m.ffn(m.norm1(x))
            return torch.addcmul(x, y, coin(x) / (KEEP if rescale else 1.0)) if m.training else x + y
        return run

    assert places(CODE, Net(lambda: Block(added(True)), 2), data()) == []
    assert places(CODE, Net(lambda: Block(added(False)), 2), data()) == ["blocks.0", "blocks.1"]


def test_a_scale_that_starts_at_zero_hides_nothing() -> None:
    def scaled(m: Any, x: Tensor) -> Tensor:
        return x + m.gamma * m.drop_path(m.ffn(m.norm1(x)))

    model = Net(lambda: Block(scaled, drop_path=DropPath(lambda x: x * coin(x)), gamma=nn.Parameter(torch.zeros(DIM))), 2)
    assert places(CODE, model, data()) == ["blocks.0.drop_path", "blocks.1.drop_path"]


def test_samples_that_are_gathered_and_added_back() -> None:
    def gathered(m: Any, x: Tensor) -> Tensor:
        if not m.training:
            return x + m.ffn(m.norm1(x))
        kept = torch.randperm(x.size(0))[: x.size(0) // 2]
        y = m.ffn(m.norm1(x[kept]))
        return torch.index_add(x.flatten(1), 0, kept, y.flatten(1), alpha=2.0).view_as(x)

    assert places(CODE, Net(lambda: Block(gathered), 2), data(batch=4)) == []
