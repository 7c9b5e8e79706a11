"""Lanes that are fractions of the channels: one stream in every spelling, and cuts that are none."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import skipway
from skipway.wiring import fractions
from skipway.wiring.trace import label

from .small import DIM, Branch, Calls, recorded, streams, tokens

AS_ONE = ("product", "einsum", "broadcast", "stack")            # the parts lie in one tensor
AS_LIST = ("chunk", "slice", "unbind", "kept")                  # in a list; kept: over all layers


class Layer(nn.Module):
    """A read of m parts, a branch, a mix and a write; with `moving` the coefficients depend on the token."""

    def __init__(self, count: int, how: str, moving: bool) -> None:
        super().__init__()
        self.count, self.how, self.branch = count, how, Branch()
        self.reader, self.mixer = (nn.Parameter(torch.eye(count) + 0.1) for _ in range(2))
        self.post = nn.Parameter(torch.ones(count))
        self.gates = nn.Linear(DIM, 2 * count * count + count) if moving else None

    def coefficients(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        n = self.count
        if self.gates is None:
            return self.reader, self.mixer, self.post
        moved = (0.01 * self.gates(x).tanh()).split([n * n, n * n, n], -1)
        return self.reader + moved[0].unflatten(-1, (n, n)), self.mixer + moved[1].unflatten(-1, (n, n)), self.post + moved[2]

    def forward(self, h: Tensor | list[Tensor]) -> Tensor | list[Tensor]:
        return self.as_one(h) if isinstance(h, Tensor) and self.how in AS_ONE else self.as_list(h)

    def as_one(self, x: Tensor) -> Tensor:
        reader, mixer, post = self.coefficients(x)
        h = torch.stack(x.chunk(self.count, -1), -2) if self.how == "stack" else x.unflatten(-1, (self.count, -1))
        if self.how == "einsum":
            spelled = "ij,btjw->btiw" if reader.dim() == 2 else "btij,btjw->btiw"
            read, mixed = torch.einsum(spelled, reader, h), torch.einsum(spelled, mixer, h)
        elif self.how == "broadcast":
            read, mixed = ((m.unsqueeze(-1) * h.unsqueeze(-3)).sum(-2) for m in (reader, mixer))
        else:
            read, mixed = reader @ h, mixer @ h
        y = self.branch(read.flatten(-2)).unflatten(-1, (self.count, -1))
        return (mixed + post.unsqueeze(-1) * y).flatten(-2)

    def as_list(self, h: Tensor | list[Tensor]) -> Tensor | list[Tensor]:
        n = self.count
        whole = h if isinstance(h, Tensor) else torch.cat(h, -1)
        reader, mixer, post = self.coefficients(whole)
        parts = parted(whole, n, self.how) if isinstance(h, Tensor) else h

        def summed(m: Tensor, i: int) -> Tensor:
            return sum(m[..., i, j, None] * parts[j] for j in range(n))
        y = self.branch(torch.cat([summed(reader, i) for i in range(n)], -1)).chunk(n, -1)
        made = [summed(mixer, i) + post[..., i, None] * y[i] for i in range(n)]
        return torch.cat(made, -1) if isinstance(h, Tensor) else made


def parted(x: Tensor, n: int, how: str) -> list[Tensor]:
    if how == "slice":
        return [x[..., k * DIM // n:(k + 1) * DIM // n] for k in range(n)]
    return list(x.unflatten(-1, (n, -1)).unbind(-2) if how == "unbind" else x.chunk(n, -1))


def model_of(count: int, how: str, moving: bool, layers: int = 3) -> nn.Module:
    def run(m: nn.Module, x: Tensor) -> Tensor:
        h = m.stem(x)
        h = parted(h, count, "chunk") if how == "kept" else h
        for layer in m.layers:
            h = layer(h)
        return m.head(m.norm(torch.cat(h, -1) if how == "kept" else h))
    torch.manual_seed(0)
    return Calls(run, stem=nn.Linear(DIM, DIM), layers=nn.ModuleList(Layer(count, how, moving) for _ in range(layers)), norm=nn.LayerNorm(DIM),
                 head=nn.Linear(DIM, 3))


@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("how", AS_ONE + AS_LIST)
def test_one_stream_in_every_spelling(how: str, count: int, moving: bool) -> None:
    model, x = model_of(count, how, moving), tokens()
    report = skipway.check(model, x, stage="train")
    (stream,) = [s for s in report.wiring.streams if s.main]
    assert (stream.lanes, stream.final_norm) == (count, "norm")
    assert [(s.placement, s.shortcut, s.gain, s.norm_modules) for s in stream.sites] == [
        ("pre", "mixed", 1.0, (f"layers.{k}.branch.norm",)) for k in range(3)]
    assert [len(s.branches) for s in stream.sites] == [1] * 3
    assert all(f"layers.{k}.branch.down" in s.branches[0].modules and s.branches[0].kind == "ffn" for k, s in enumerate(stream.sites))
    assert [f.code for f in report.findings] == []
    assert report.wiring.replay(model, x).ok


@pytest.mark.parametrize("how", ["product", "chunk"])
def test_without_the_search_the_stream_is_lost(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fractions, "find", lambda g: frozenset())
    with pytest.raises((AssertionError, ValueError)):
        test_one_stream_in_every_spelling(how, 4, False)


def none(run: Callable[..., Tensor], sites: int, **parts: object) -> None:
    """No cut is kept, and the stream has one lane."""
    torch.manual_seed(0)
    model = Calls(run, stem=nn.Linear(DIM, DIM), head=nn.Linear(DIM, 3), norm=nn.LayerNorm(DIM), **parts)
    assert label(recorded(model, tokens())).cuts == frozenset()
    assert [(s.lanes, len(s.sites)) for s in streams(model, tokens()) if s.main] == [(1, sites)]


def test_heads_are_no_lanes() -> None:
    """As many tokens as heads and channels a head: shapes say nothing."""
    def run(m: nn.Module, x: Tensor) -> Tensor:
        x = m.stem(x[:, :4])
        q, k, v = (f(m.norm(x)).unflatten(-1, (4, 4)) for f in m.fs)
        return m.head(x + m.out(((q @ k.mT).softmax(-1) @ v).flatten(-2)))
    none(run, 1, fs=nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(3)), out=nn.Linear(DIM, DIM))


def test_mixed_heads_of_a_branch_are_no_lanes() -> None:
    def run(m: nn.Module, x: Tensor) -> Tensor:
        x = m.stem(x)
        y = m.fs[0](m.norm(x)).unflatten(-1, (4, 4))
        return m.head(x + m.fs[1]((m.mixer @ F.relu(y)).flatten(-2)))
    none(run, 1, fs=nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(2)), mixer=nn.Parameter(torch.eye(4)))


def test_a_block_diagonal_matrix_is_a_branch() -> None:
    """Two products over either axis of a cut, as in a butterfly: the channels are mixed within the branch alone."""
    def run(m: nn.Module, x: Tensor) -> Tensor:
        x = m.stem(x)
        y = m.second @ F.relu(m.first @ m.norm(x).unflatten(-1, (4, 4))).mT
        return m.head(x + y.flatten(-2))
    none(run, 1, first=nn.Parameter(torch.randn(4, 4)), second=nn.Parameter(torch.randn(4, 4)))


def test_a_rotated_half_is_no_lane() -> None:
    def run(m: nn.Module, x: Tensor) -> Tensor:
        x = m.stem(x)
        a, b = m.f(m.norm(x)).chunk(2, -1)
        turned = torch.cat([a * m.cos - b * m.sin, b * m.cos + a * m.sin], -1)
        return m.head(x + m.out(F.relu(turned)))
    none(run, 1, f=nn.Linear(DIM, DIM), out=nn.Linear(DIM, DIM), cos=torch.rand(DIM // 2), sin=torch.rand(DIM // 2))


def test_halves_that_are_gated_are_no_lanes() -> None:
    def run(m: nn.Module, x: Tensor) -> Tensor:
        x = m.stem(x)
        a, b = m.f(m.norm(x)).chunk(2, -1)
        return m.head(x + m.out(a * b.sigmoid() + m.scale * a + b))
    none(run, 1, f=nn.Linear(DIM, 2 * DIM), out=nn.Linear(DIM, DIM), scale=nn.Parameter(torch.ones(1)))
