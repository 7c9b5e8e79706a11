"""Streams that one branch writes together (ResiDual), skips around post-norm sublayers (B2T), and what the rules make of them and of KEEL."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import skipway

from .small import DIM, Calls


def ffn() -> nn.Module:
    return nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.ReLU(), nn.Linear(2 * DIM, DIM))


def blocks(run: Callable[..., tuple[Tensor, ...]], close: Callable[..., Tensor], count: int = 4, norms: int = 2) -> nn.Module:
    """stem, blocks that each turn the streams into the next ones, and the head behind what `close` makes of them."""
    def whole(m: nn.Module, x: Tensor) -> Tensor:
        x = m.stem(x)
        streams = (x, x)
        for block in m.blocks:
            streams = block(streams)
        return m.head(close(m, streams))

    def block() -> nn.Module:
        torch.manual_seed(0)
        return Calls(run, f=ffn(), g=ffn(), n=nn.ModuleList(nn.LayerNorm(DIM) for _ in range(norms)))

    return Calls(whole, stem=nn.Linear(5, DIM), blocks=nn.ModuleList(block() for _ in range(count)), last=nn.LayerNorm(DIM), head=nn.Linear(DIM, 3))


def dual_post_first(m: nn.Module, streams: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    a, d = streams
    for f, n in zip((m.f, m.g), m.n):
        y = f(a)
        a, d = n(a + y), d + y
    return a, d


def dual_raw_first(m: nn.Module, streams: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    a, d = streams
    for f, n in zip((m.f, m.g), m.n):
        y = f(a)
        d = d + y
        a = n(a + y)
    return a, d


X = torch.randn(2, 7, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("run", [dual_post_first, dual_raw_first])
def test_two_streams_that_share_their_branches(run: Callable[..., tuple[Tensor, ...]]) -> None:
    model = blocks(run, lambda m, s: s[0] + m.last(s[1]))
    wiring = skipway.trace(model, X)
    main = {tuple(s.placement for s in stream.sites): stream for stream in wiring.streams if stream.main}
    assert set(main) == {("post",) * 8, ("none",) * 8} and len(wiring.streams) == 2
    assert main[("none",) * 8].final_norm == "last"
    modules = [[b.modules[0] for b in site.branches] for site in main[("none",) * 8].sites]
    assert modules == [[f"blocks.{k}.{name}"] for k in range(4) for name in "fg"]
    assert max(site.ulp for site in wiring.replay(model, X).sites) == 0
    assert [f for f in skipway.check(model, X, stage="train").findings if f.severity != "note"] == []


def bottom_to_top(m: nn.Module, streams: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    x, _ = streams
    u = m.n[0](x + m.f(x))
    x = m.n[1](u + m.g(u) + x)
    return x, x


def test_a_skip_around_post_norm_sublayers_is_no_site_of_its_own() -> None:
    model = blocks(bottom_to_top, lambda m, s: s[0])
    wiring = skipway.trace(model, X)
    (stream,) = wiring.streams
    assert [s.placement for s in stream.sites] == ["post"] * 8
    assert [s.gain for s in stream.sites] == [1.0] * 8
    assert max(site.ulp for site in wiring.replay(model, X).sites) == 0
    assert [f for f in skipway.check(model, X, stage="train").findings if f.severity != "note"] == []


def keel(m: nn.Module, streams: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    x, _ = streams
    for f, before, after in zip((m.f, m.g), m.n[:2], m.n[2:]):
        x = after(8 * x + f(before(x)))
    return x, x


def grows(m: nn.Module, streams: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    x, _ = streams
    for f, before in zip((m.f, m.g), m.n[:2]):
        x = 8 * x + f(before(x))
    return x, x


def test_a_factor_on_the_shortcut_that_a_norm_takes_out_again() -> None:
    """And the same factor where no norm does is told at every site."""
    quiet = skipway.check(blocks(keel, lambda m, s: s[0], norms=4), X)
    assert [s.gain for s in quiet.wiring.streams[0].sites] == [8.0] * 8
    assert [f.code for f in quiet.findings if f.severity != "note"] == []
    loud = skipway.check(blocks(grows, lambda m, s: m.last(s[0])), X)
    assert [f.code for f in loud.findings if f.severity != "note"] == ["SKW103"] * 8


class Plain(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(5, DIM), nn.Linear(DIM, 3)
        self.body = nn.ModuleList(nn.Sequential(nn.Linear(DIM, DIM), nn.Tanh()) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.body:
            x = layer(x)
        return self.head(x)


class Wrapped(nn.Module):
    """The same with the layers in a module of their own."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(5, DIM), nn.Linear(DIM, 3)
        self.body = nn.Sequential(*[layer for _ in range(count) for layer in (nn.Linear(DIM, DIM), nn.Tanh())])

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.stem(x)))


@pytest.mark.parametrize("net", [Plain, Wrapped])
def test_a_deep_plain_net_is_an_error_however_it_is_held(net: type[nn.Module]) -> None:
    told = [(f.code, f.severity) for f in skipway.check(net(16), X).findings]
    assert told == [("SKW101", "error")]
    assert {f.severity for f in skipway.check(net(8), X).findings} == {"note"}
