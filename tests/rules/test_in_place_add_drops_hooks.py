"""in-place-add-drops-hooks: the rule fires exactly where torch drops a hook."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from .training import DIM, Attention, Net, data, found, places

CODE = "SKW608"


class Added(nn.Module):
    """norm -> up -> `last` and the stream added to it, in place or not."""

    def __init__(self, last: nn.Module, in_place: bool) -> None:
        super().__init__()
        self.norm, self.up, self.last, self.in_place = nn.LayerNorm(DIM), nn.Linear(DIM, DIM), last, in_place

    def forward(self, x: Tensor) -> Tensor:
        y = self.last(torch.relu(self.up(self.norm(x))))
        if self.in_place:
            y += x
            return y
        return y + x


class Turned(nn.Module):
    """Returns a view of what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(DIM, DIM, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x.transpose(1, 2)).transpose(1, 2)


def unsplit(x: Tensor) -> Tensor:
    return x


LAST: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    "linear": (lambda: nn.Linear(DIM, DIM), True),
    "linear without a bias": (lambda: nn.Linear(DIM, DIM, bias=False), False),
    "transposed": (Turned, True),
    "attention": (Attention, True),
    "norm": (lambda: nn.LayerNorm(DIM), False),
    "activation": (nn.GELU, False),
}


def loses_its_hook(make: Callable[[], nn.Module], x: Tensor) -> bool:
    """What torch does, by itself."""
    seen: list[Any] = []
    torch.manual_seed(0)
    block = Added(make(), True)
    block.last.register_forward_hook(lambda m, i, out: out.register_hook(seen.append) and None)
    block(x).sum().backward()
    return not seen


@pytest.mark.parametrize("name", LAST)
def test_fires_where_torch_drops_the_hook(name: str) -> None:
    make, dropped = LAST[name]
    assert loses_its_hook(make, data(width=DIM)) is dropped
    hits = found(CODE, Net(lambda: Added(make(), True), 2), data())
    assert [h.where for h in hits] == (["blocks.0.last", "blocks.1.last"] if dropped else [])
    assert all(h.severity == "note" and h.values["written"] == h.where for h in hits)


@pytest.mark.parametrize("name", LAST)
def test_quiet_on_a_new_tensor(name: str) -> None:
    assert places(CODE, Net(lambda: Added(LAST[name][0](), False), 2), data()) == []


def test_two_axes_are_no_view() -> None:
    x = torch.randn(6, 4)
    assert not loses_its_hook(lambda: nn.Linear(DIM, DIM), torch.randn(6, DIM))
    assert places(CODE, Net(lambda: Added(nn.Linear(DIM, DIM), True), 2), x) == []
