"""drop-path-axis: masks that are shared by the samples, in every spelling and layout; none where there is one number a sample."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .training import DIM, Block, Net, data, found, places

CODE = "SKW402"


class DropPath(nn.Module):
    """`mask(x)` is multiplied in training."""

    def __init__(self, mask: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mask(x) if self.training else x


def along(*axes: int) -> Callable[[Tensor], Tensor]:
    def mask(x: Tensor) -> Tensor:
        return torch.empty([x.size(d) if d in axes else 1 for d in range(x.dim())]).bernoulli_(0.7) / 0.7
    return mask


SPELLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "bernoulli in place": along(0),
    "floor": lambda x: (0.7 + torch.rand(x.size(0), 1, 1)).floor() / 0.7,
    "comparison": lambda x: (torch.rand(x.size(0), 1, 1) < 0.7) / 0.7,
    "bernoulli of a table": lambda x: torch.bernoulli(torch.full((x.size(0), 1, 1), 0.7)) / 0.7,
    "drop-out of ones": lambda x: F.dropout(torch.ones(x.size(0), 1, 1), 0.3),
    "distribution": lambda x: torch.distributions.Bernoulli(0.7).sample((x.size(0), 1, 1)) / 0.7,
}


def run(m: Any, x: Tensor) -> Tensor:
    x = x + m.drop_path(m.attn(m.norm1(x)))
    return x + m.drop_path(m.ffn(m.norm2(x)))


def net(mask: Callable[[Tensor], Tensor], tokens_first: bool = False) -> nn.Module:
    return Net(lambda: Block(run, not tokens_first, drop_path=DropPath(mask)), 2, tokens_first=tokens_first)


@pytest.mark.parametrize("name", SPELLINGS)
def test_axis_0_of_a_stream_with_tokens_first(name: str) -> None:
    hits = found(CODE, net(SPELLINGS[name], True), data())
    assert [h.where for h in hits] == ["blocks.0.drop_path", "blocks.1.drop_path"]
    assert hits[0].severity == "error"
    assert hits[0].values == {"mask_axes": [0], "sample_axis": 1, "mask_shape": [5, 1, 1]}


@pytest.mark.parametrize("name", SPELLINGS)
def test_axis_0_of_a_stream_with_samples_first(name: str) -> None:
    assert places(CODE, net(SPELLINGS[name]), data()) == []


def test_the_sample_axis_in_any_layout_is_right() -> None:
    assert places(CODE, net(along(1), True), data()) == []
    hits = found(CODE, net(along(1)), data())
    assert [h.values["sample_axis"] for h in hits] == [0, 0]


def test_inputs_that_come_tokens_first() -> None:
    """The batch is the axis along which nothing mixes, not the first one."""
    class Bare(nn.Module):
        def __init__(self, axis: int) -> None:
            super().__init__()
            self.blocks = nn.Sequential(*[Block(run, False, drop_path=DropPath(along(axis))) for _ in range(2)])

        def forward(self, x: Tensor) -> Tensor:
            return self.blocks(x)

    assert places(CODE, Bare(1), data(width=DIM)) == []
    assert places(CODE, Bare(0), data(width=DIM)) == ["blocks.0.drop_path", "blocks.1.drop_path"]


def test_one_number_a_batch_is_allowed() -> None:
    assert places(CODE, net(along(), True), data()) == []


def test_a_branch_that_is_transposed_between_mask_and_add() -> None:
    def turned(m: Any, x: Tensor) -> Tensor:
        return x + m.drop_path(m.attn(m.norm1(x)).transpose(0, 1)).transpose(0, 1)

    def model(axis: int) -> nn.Module:
        return Net(lambda: Block(turned, False, drop_path=DropPath(along(axis))), 2, tokens_first=True)

    assert places(CODE, model(0), data()) == []
    assert places(CODE, model(1), data()) == ["blocks.0.drop_path", "blocks.1.drop_path"]


def test_a_branch_that_starts_at_zero_hides_nothing() -> None:
    model = net(along(0), True)
    for name, p in model.named_parameters():
        if name.startswith("blocks") and ("out_proj" in name or "ffn.2" in name):
            nn.init.zeros_(p)
    assert places(CODE, model, data()) == ["blocks.0.drop_path", "blocks.1.drop_path"]


def test_a_scale_at_zero_between_mask_and_add_hides_nothing() -> None:
    def scaled(m: Any, x: Tensor) -> Tensor:
        return x + m.gamma * m.drop_path(m.attn(m.norm1(x)))

    model = Net(lambda: Block(scaled, False, drop_path=DropPath(along(0)), gamma=nn.Parameter(torch.zeros(DIM))), 2, tokens_first=True)
    assert places(CODE, model, data()) == ["blocks.0.drop_path", "blocks.1.drop_path"]


def test_a_drop_path_that_is_drop_out_or_draws_for_every_token() -> None:
    assert places(CODE, net(along(0, 1)), data()) == ["blocks.0.drop_path", "blocks.1.drop_path"]
    assert places(CODE, net(along(0, 1, 2)), data()) == ["blocks.0.drop_path", "blocks.1.drop_path"]


@pytest.mark.parametrize("drop", [nn.Dropout(0.3), nn.Dropout1d(0.3), nn.AlphaDropout(0.3)], ids=lambda d: type(d).__name__)
def test_other_regularisers_are_quiet(drop: nn.Module) -> None:
    def branch(m: Any, x: Tensor) -> Tensor:
        return x + m.drop(m.attn(m.norm1(x)))

    assert places(CODE, Net(lambda: Block(branch, drop=drop), 2), data()) == []


def test_frames_folded_with_samples_are_quiet() -> None:
    class Folded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(*[Block(run, drop_path=DropPath(along(0))) for _ in range(2)])

        def forward(self, x: Tensor) -> Tensor:
            return self.blocks(x.flatten(0, 1)).unflatten(0, x.shape[:2])

    assert places(CODE, Folded(), torch.randn(2, 3, 4, DIM)) == []


def test_one_sample_says_nothing() -> None:
    assert places(CODE, net(along(0), True), data(batch=1)) == []


def test_torchvisions_module() -> None:
    ops = pytest.importorskip("torchvision.ops")

    def model(mode: str) -> nn.Module:
        return Net(lambda: Block(run, False, drop_path=ops.StochasticDepth(0.3, mode)), 2, tokens_first=True)

    assert places(CODE, model("row"), data()) == ["blocks.0.drop_path", "blocks.1.drop_path"]
    assert places(CODE, model("batch"), data()) == []
