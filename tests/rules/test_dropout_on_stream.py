"""dropout-on-stream: masks with zeros on the identity path, in every spelling; none on branches, before the first block, before the head."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .training import DIM, Block, Net, data, ffn, found, places, plain

CODE = "SKW401"
Run = Callable[[Any, Tensor], Tensor]


def after_the_add(m: Any, x: Tensor) -> Tensor:
    x = m.drop(x + m.attn(m.norm1(x)))
    return x + m.ffn(m.norm2(x))


def after_the_norm(m: Any, x: Tensor) -> Tensor:
    x = m.drop(m.norm1(x + m.attn(x)))
    return m.norm2(x + m.ffn(x))


def before_the_norm(m: Any, x: Tensor) -> Tensor:
    x = m.norm1(m.drop(x + m.attn(x)))
    return m.norm2(x + m.ffn(x))


def shortcut_alone(m: Any, x: Tensor) -> Tensor:
    x = m.drop(x) + m.attn(m.norm1(x))
    return x + m.ffn(m.norm2(x))


def at_the_entry(m: Any, x: Tensor) -> Tensor:
    x = m.drop(x)
    x = x + m.attn(m.norm1(x))
    return x + m.ffn(m.norm2(x))


def by_hand(m: Any, x: Tensor) -> Tensor:
    x = plain(m, x)
    return x.masked_fill(torch.rand_like(x) < 0.25, 0.0) / 0.75 if m.training else x


def whole_samples(m: Any, x: Tensor) -> Tensor:
    x = plain(m, x)
    return x * torch.empty(x.size(0), 1, 1).bernoulli_(0.75) / 0.75 if m.training else x


FAULTS: dict[str, tuple[Run, str, str]] = {
    "after the add": (after_the_add, "blocks.0.drop", "element"),
    "after the norm": (after_the_norm, "blocks.0.drop", "element"),
    "before the norm": (before_the_norm, "blocks.0.drop", "element"),
    "on the shortcut alone": (shortcut_alone, "blocks.0.drop", "element"),
    "at the entry of the next block": (at_the_entry, "blocks.1.drop", "element"),
    "functional": (lambda m, x: F.dropout(plain(m, x), 0.25, m.training), "blocks.0", "element"),
    "by hand": (by_hand, "blocks.0", "element"),
    "whole samples": (whole_samples, "blocks.0", "sample"),
}
QUIET: dict[str, Run] = {
    "none": plain,
    "on the branch": lambda m, x: x + m.drop(m.attn(m.norm1(x))),
    "on the branch, post-norm": lambda m, x: m.norm1(x + m.drop(m.attn(x))),
    "in front of the branch": lambda m, x: x + m.attn(m.drop(m.norm1(x))),
    "noise without zeros": lambda m, x: plain(m, x) * (1 + 0.01 * torch.randn_like(x)) if m.training else plain(m, x),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fires_on(name: str) -> None:
    run, where, per = FAULTS[name]
    hits = found(CODE, Net(lambda: Block(run, drop=nn.Dropout(0.25))), data())
    assert hits[0].where == where and f"`{where}`" in hits[0].message
    assert all(h.severity == "error" for h in hits)
    assert hits[0].values["per"] == per
    assert hits[0].values["rate"] == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("name", QUIET)
def test_quiet_on(name: str) -> None:
    assert places(CODE, Net(lambda: Block(QUIET[name], drop=nn.Dropout(0.25))), data()) == []


def test_every_block_is_named_once_and_the_last_one_too() -> None:
    model = Net(lambda: Block(after_the_norm, drop=nn.Dropout(0.25)))
    assert places(CODE, model, data()) == ["blocks.0.drop", "blocks.1.drop", "blocks.2.drop"]


def test_a_drop_between_blocks_in_the_model_itself() -> None:
    class Dropping(Net):
        def __init__(self) -> None:
            super().__init__(lambda: Block(plain))
            self.drop = nn.Dropout(0.25)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            for block in self.blocks:
                x = self.drop(block(x))
            return self.head(self.norm(x))

    assert places(CODE, Dropping(), data()) == ["drop"]


def test_embedding_drop_and_head_drop_are_none() -> None:
    model = Net(lambda: Block(plain))
    model.stem = nn.Sequential(nn.Linear(4, DIM), nn.Dropout(0.25))
    model.head = nn.Sequential(nn.Dropout(0.25), nn.Linear(DIM, 3))
    assert places(CODE, model, data()) == []


def test_a_convolutional_position_embedding_belongs_to_the_stem() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.conv, self.norm, self.drop = nn.Linear(4, DIM), nn.Conv1d(DIM, DIM, 3, padding=1), nn.LayerNorm(DIM), nn.Dropout(0.25)

        def forward(self, x: Tensor) -> Tensor:
            x = self.linear(x)
            return self.drop(self.norm(x + F.gelu(self.conv(x.transpose(1, 2)).transpose(1, 2))))

    model = Net(lambda: Block(plain))
    model.stem = Positions()
    assert places(CODE, model, data()) == []


def test_between_two_kinds_of_stacks_it_is_allowed() -> None:
    class Refine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.ffn = nn.LayerNorm(DIM), ffn()

        def forward(self, x: Tensor) -> Tensor:
            return x + self.ffn(self.norm(x))

    class Stacks(Net):
        def __init__(self) -> None:
            super().__init__(lambda: Block(plain))
            self.drop, self.refine = nn.Dropout(0.25), nn.Sequential(Refine(), Refine())

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            for block in self.blocks:
                x = block(x)
            return self.head(self.refine(self.drop(x)))

    assert places(CODE, Stacks(), data()) == []


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_torchs_own_layers_are_quiet(norm_first: bool, batch_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(DIM, 2, 32, 0.25, batch_first=batch_first, norm_first=norm_first)
    assert places(CODE, nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), data(width=DIM)) == []


def test_a_single_block_that_returns_what_it_dropped() -> None:
    hits = found(CODE, Block(lambda m, x: m.drop(x + m.ffn(m.norm1(x))), drop=nn.Dropout(0.25)), data(width=DIM))
    assert [h.where for h in hits] == ["drop"]


def test_images() -> None:
    class Residual(nn.Module):
        def __init__(self, on_stream: bool) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
            self.norm1, self.norm2, self.drop, self.on_stream = nn.BatchNorm2d(8), nn.BatchNorm2d(8), nn.Dropout2d(0.25), on_stream

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
            return self.drop(torch.relu(x + y)) if self.on_stream else torch.relu(x + self.drop(y))

    def images(on_stream: bool) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *[Residual(on_stream) for _ in range(2)], nn.Flatten(), nn.Linear(8 * 36, 3))

    assert places(CODE, images(True), torch.randn(2, 3, 6, 6)) == ["1.drop", "2.drop"]
    assert places(CODE, images(False), torch.randn(2, 3, 6, 6)) == []


def test_a_frozen_model_is_not_judged() -> None:
    model = Net(lambda: Block(after_the_norm, drop=nn.Dropout(0.25)))
    model.requires_grad_(False)
    assert places(CODE, model, data()) == []
