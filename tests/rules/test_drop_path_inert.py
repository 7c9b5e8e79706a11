"""drop-path-inert: stochastic-depth modules with a rate that do nothing; none that draw, have no rate, or have no skip to drop."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from .training import DIM, Block, Net, data, ffn, found, places

CODE = "SKW404"


class DropPath(nn.Module):
    def __init__(self, rate: float = 0.2) -> None:
        super().__init__()
        self.drop_prob = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.drop_prob:
            return x
        return x * x.new_empty(x.size(0), 1, 1).bernoulli_(1 - self.drop_prob) / (1 - self.drop_prob)


def functional(x: Tensor, rate: float, training: bool = False) -> Tensor:
    return x * x.new_empty(x.size(0), 1, 1).bernoulli_(1 - rate) / (1 - rate) if training else x


class Default(DropPath):
    def forward(self, x: Tensor) -> Tensor:
        return functional(x, self.drop_prob)


class Coin(DropPath):
    def forward(self, x: Tensor) -> Tensor:
        if self.training and random.random() < self.drop_prob:
            return torch.zeros_like(x)
        return x


def both(m: Any, x: Tensor) -> Tensor:
    x = x + m.drop_path1(m.attn(m.norm1(x)))
    return x + m.drop_path2(m.ffn(m.norm2(x)))


def first_twice(m: Any, x: Tensor) -> Tensor:
    x = x + m.drop_path1(m.attn(m.norm1(x)))
    return x + m.drop_path1(m.ffn(m.norm2(x)))


def discarded(m: Any, x: Tensor) -> Tensor:
    x = x + m.drop_path1(m.attn(m.norm1(x)))
    y = m.ffn(m.norm2(x))
    m.drop_path2(y)
    return x + y


INERT: dict[str, tuple[Callable[[Any, Tensor], Tensor], Callable[[], nn.Module], str]] = {
    "never called": (first_twice, DropPath, "not called"),
    "never called, plain drop-out": (first_twice, lambda: nn.Dropout(0.2), "not called"),
    "training left at its default": (both, Default, "draws nothing"),
    "result discarded": (discarded, DropPath, "result unused"),
}
QUIET: dict[str, tuple[Callable[[Any, Tensor], Tensor], Callable[[], nn.Module]]] = {
    "called": (both, DropPath),
    "rate 0": (first_twice, lambda: DropPath(0.0)),
    "identity": (first_twice, nn.Identity),
    "drawn by the interpreter": (both, Coin),
}


@pytest.mark.parametrize("name", INERT)
def test_fires_on(name: str) -> None:
    run, make, why = INERT[name]
    hits = found(CODE, Net(lambda: Block(run, drop_path1=DropPath(), drop_path2=make()), 2), data())
    assert [h.where for h in hits] == ["blocks.0.drop_path2", "blocks.1.drop_path2"]
    assert [(h.severity, h.values) for h in hits] == [("note", {"rate": 0.2, "why": why})] * 2


@pytest.mark.parametrize("name", QUIET)
def test_quiet_on(name: str) -> None:
    run, make = QUIET[name]
    assert places(CODE, Net(lambda: Block(run, drop_path1=DropPath(), drop_path2=make()), 2), data()) == []


def test_blocks_that_do_not_run_are_not_judged() -> None:
    model = Net(lambda: Block(both, drop_path1=DropPath(), drop_path2=DropPath()), 2)
    model.spare = Block(both, drop_path1=DropPath(), drop_path2=DropPath())
    assert places(CODE, model, data()) == []


def test_a_block_without_a_skip_has_nothing_to_drop() -> None:
    class Widening(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map, self.stochastic_depth = nn.Linear(4, DIM), DropPath()

        def forward(self, x: Tensor) -> Tensor:
            return self.map(x)

    model = Net(lambda: Block(both, drop_path1=DropPath(), drop_path2=DropPath()), 2)
    model.stem = Widening()
    assert places(CODE, model, data()) == []


def test_a_plain_drop_out_by_another_name_is_none_of_this_rules_business() -> None:
    assert places(CODE, Net(lambda: Block(lambda m, x: x + m.f(x), f=ffn(), drop=nn.Dropout(0.5)), 2), data()) == []
