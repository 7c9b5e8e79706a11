"""Streams of several lanes: how they are born, mixed and read, and what only looks like lanes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from skipway.wiring import lanes
from skipway.wiring.structure import Stream

from .small import DIM, Branch, Calls, Tower, streams, tokens


class Mixing(nn.Module):
    """One sublayer on n lanes: read, branch, mix, write. `axis` is where the lanes lie, 1 or 2; `how` is the spelling of the mixing."""

    def __init__(self, count: int, axis: int, how: str) -> None:
        super().__init__()
        self.axis, self.how, self.branch = axis, how, Branch()
        self.pre, self.post, self.mix = (nn.Parameter(torch.ones(s)) for s in ((count,), (count,), (count, count)))

    def forward(self, h: Tensor) -> Tensor:
        sub = "bntd" if self.axis == 1 else "btnd"
        read = torch.einsum(f"n,{sub}->btd", self.pre, h)
        y = self.branch(read).unsqueeze(self.axis)
        shape = [1] * 4
        shape[self.axis] = -1
        if self.how == "einsum":
            mixed = torch.einsum(f"mn,{sub}->{sub.replace('n', 'm')}", self.mix, h)
        elif self.how == "matmul":
            mixed = (self.mix @ h.movedim(self.axis, 2)).movedim(2, self.axis)
        else:
            spread = [1] * 5
            spread[self.axis], spread[self.axis + 1] = self.mix.shape
            mixed = (self.mix.view(spread) * h.unsqueeze(self.axis)).sum(self.axis + 1)
        return mixed + self.post.view(shape) * y


BIRTHS: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "expand": lambda x, n, axis: x.unsqueeze(axis).expand(*[n if d == axis else -1 for d in range(4)]),
    "repeat": lambda x, n, axis: x.unsqueeze(axis).repeat(*[n if d == axis else 1 for d in range(4)]),
    "stack": lambda x, n, axis: torch.stack([x] * n, axis),
    "expand and clone": lambda x, n, axis: x.unsqueeze(axis).expand(*[n if d == axis else -1 for d in range(4)]).contiguous(),
}


def model_of(count: int, axis: int = 2, birth: str = "expand", how: str = "einsum", depth: int = 2, read: str = "sum") -> nn.Module:
    def run(m: nn.Module, x: Tensor) -> Tensor:
        h = BIRTHS[birth](m.stem(x), count, axis)
        for block in m.blocks:
            h = block(h)
        return m.head(m.norm(h.sum(axis) if read == "sum" else h.mean(axis)))
    return Calls(run, stem=nn.Linear(DIM, DIM), blocks=nn.ModuleList(Mixing(count, axis, how) for _ in range(depth)), norm=nn.LayerNorm(DIM),
                 head=nn.Linear(DIM, 3))


def lanes_of(model: nn.Module) -> tuple[int, list[str], list[float | None]]:
    found = [s for s in streams(model, tokens()) if s.main]
    assert len(found) == 1, f"want one main stream, found {[s.name for s in found]}"
    stream = found[0]
    return stream.lanes, [s.shortcut for s in stream.sites], [s.gain for s in stream.sites]


@pytest.mark.parametrize("count", [2, 3, 4, 8])
@pytest.mark.parametrize("axis", [1, 2])
def test_mixed_lanes_are_one_stream(count: int, axis: int) -> None:
    assert lanes_of(model_of(count, axis)) == (count, ["mixed"] * 2, [1.0] * 2)


@pytest.mark.parametrize("birth", sorted(BIRTHS))
@pytest.mark.parametrize("how", ["einsum", "matmul", "broadcast"])
def test_births_and_mixings(birth: str, how: str) -> None:
    assert lanes_of(model_of(4, 2, birth, how)) == (4, ["mixed"] * 2, [1.0] * 2)


@pytest.mark.parametrize("read", ["sum", "mean"])
def test_the_lanes_are_read_before_the_final_norm(read: str) -> None:
    (stream,) = [s for s in streams(model_of(3, read=read), tokens()) if s.main]
    assert stream.final_norm == "norm" and stream.lanes == 3
    assert [[b.kind for b in s.branches] for s in stream.sites] == [["ffn"]] * 2
    assert [(s.placement, s.norm_modules, s.scale) for s in stream.sites] == [("pre", (f"blocks.{k}.branch.norm",), "vector") for k in (0, 1)]


def one_lane(*found: Stream) -> None:
    assert [s.lanes for s in found] == [1] * len(found) and found


def test_a_plain_stack_has_one_lane() -> None:
    one_lane(*streams(Tower(Calls(lambda m, x: x + m.f(x), f=Branch())), tokens()))


def test_heads_and_batches_are_no_lanes() -> None:
    def run(m: nn.Module, x: Tensor) -> Tensor:
        h = m.stem(x)[:, None].expand(-1, 4, -1, -1)                # beams, each on its own
        h = h + m.f(h)
        return m.head(h)
    one_lane(*streams(Calls(run, stem=nn.Linear(DIM, DIM), f=Branch(), head=nn.Linear(DIM, 3)), tokens()))


def test_more_than_the_most_lanes_is_time() -> None:
    assert [s for s in streams(model_of(lanes.MOST + 1), tokens()) if s.lanes > 1] == []
    assert {s.lanes for s in streams(model_of(lanes.MOST), tokens()) if s.main} == {lanes.MOST}


def test_a_recorder_that_loses_the_lane_axis_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_axis", lambda shape, inner: None)
    with pytest.raises(AssertionError):
        test_mixed_lanes_are_one_stream(3, 2)


@pytest.mark.parametrize(("shape", "inner", "want"), [((2, 5, 4, 16), 16, (2, 1)), ((2, 4, 5, 16), 80, (1, 1)), ((2, 5, 64), 16, (2, 16)),
                                                      ((64,), 16, (0, 16)),
                                                      ((2, 3), 6, None), ((2, 3), 1, (1, 1))])
def test_the_axis_that_holds_the_lanes(shape: tuple[int, ...], inner: int, want: tuple[int, int] | None) -> None:
    assert lanes._axis(shape, inner) == want
