"""update-rounded-away: the share of updates that an add loses, measured and said once a group."""

import pytest
import torch
from torch import Tensor, nn

from .values import DIM, found, places

CODE = "SKW703"
X = torch.randn(4, 8, 4, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    def __init__(self, size: float, wide: bool = False) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(DIM), nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)
        self.size, self.wide = size, wide

    def forward(self, x: Tensor) -> Tensor:
        y = self.size * self.down(torch.relu(self.up(self.norm(x.to(self.up.weight.dtype)))))
        return x.float() + y if self.wide else x + y


class Net(nn.Module):
    def __init__(self, stream: float, *blocks: Block) -> None:
        super().__init__()
        self.stream, self.stem, self.blocks, self.norm = stream, nn.Linear(4, DIM), nn.Sequential(*blocks), nn.LayerNorm(DIM)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.blocks(self.stem(x) * self.stream).to(self.stem.weight.dtype))


def net(stream: float, *sizes: float, wide: bool = False) -> nn.Module:
    torch.manual_seed(0)
    return Net(stream, *[Block(size, wide) for size in sizes]).eval()


def test_the_share_is_the_one_that_plain_arithmetic_gives() -> None:
    model = net(500.0, 1.0)
    hit = found(CODE, model, X, dtype="bfloat16")[0]
    half = net(500.0, 1.0).bfloat16()
    with torch.no_grad():
        x = half.stem(X.bfloat16()) * 500.0
        y = half.blocks[0].down(torch.relu(half.blocks[0].up(half.blocks[0].norm(x))))
        lost = ((x + y == x) & (y != 0)).sum() / (y != 0).sum()
    assert hit.values["share"] == pytest.approx(float(lost), abs=1e-9)
    assert 0.5 < hit.values["share"] <= 1 and f"{hit.values['share']:.0%}" in hit.message
    assert (hit.severity, hit.values["dtype"]) == ("note", "bfloat16")


def test_a_group_of_blocks_is_told_once_at_its_worst() -> None:
    hits = found(CODE, net(500.0, 1.0, 1e-3, 1.0, 1.0), X, dtype="bfloat16")
    assert [(f.where, f.values["sites"]) for f in hits] == [("blocks.1.down", 4)]
    assert hits[0].values["share"] == 1.0


@pytest.mark.parametrize(("stream", "size", "dtype", "lost"), [
    (1.0, 1.0, "bfloat16", False), (1.0, 1e-5, "bfloat16", True), (1.0, 1e-5, "float32", False), (1.0, 1e-8, "float32", True),
    (1e8, 1.0, "float32", True),
    (1.0, 1.0, "float16", False), (1e4, 1.0, "float16", True), (1.0, 0.0, "bfloat16", False)])
def test_what_counts_is_stream_against_branch_in_the_dtype(stream: float, size: float, dtype: str, lost: bool) -> None:
    assert bool(places(CODE, net(stream, size), X, dtype=dtype)) is lost


def test_a_stream_in_float32_loses_nothing() -> None:
    assert places(CODE, net(500.0, 1.0, wide=True), X, dtype="bfloat16") == []
