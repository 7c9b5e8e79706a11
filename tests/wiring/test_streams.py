"""Streams: main, side and inner ones, their order and names, layers, and the final norm."""

import importlib
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipway
from skipway.wiring import streams as module
from skipway.wiring.structure import Stream

from .small import DIM, Block, Branch, Calls, Tower, streams, tokens


class Cross(nn.Module):
    """A pre-norm decoder block: reads itself, then a memory, then a feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attn, self.cross = (nn.MultiheadAttention(DIM, 2, batch_first=True) for _ in range(2))
        self.ffn = Branch()

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        y = self.norm(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        x = x + self.cross(self.norm2(x), memory, memory, need_weights=False)[0]
        return x + self.ffn(x)


def _seq2seq(m: nn.Module, source: Tensor, target: Tensor) -> Tensor:
    memory = m.encoder(source)
    y = m.embed(target)
    for block in m.decoder:
        y = block(y, memory)
    return m.head(m.norm(y))


def seq2seq() -> nn.Module:
    return Calls(_seq2seq, encoder=nn.Sequential(nn.Linear(DIM, DIM), Block(), Block(), nn.LayerNorm(DIM)), embed=nn.Embedding(9, DIM),
                 decoder=nn.ModuleList([Cross(), Cross()]), norm=nn.LayerNorm(DIM), head=nn.Linear(DIM, 9))


def told(found: tuple[Stream, ...]) -> list[tuple[str, bool, int, str | None]]:
    return [(s.name, s.main, len(s.sites), s.final_norm) for s in found]


def test_an_encoder_comes_before_its_decoder() -> None:
    found = streams(seq2seq(), tokens(), torch.arange(8).view(2, 4))
    assert told(found) == [("encoder", True, 4, "encoder.3"), ("decoder", True, 6, "norm")]
    assert [s.stem for s in found] == ["encoder.0", "embed"]
    assert [b.kind for s in found[1].sites for b in s.branches] == ["self_attention", "cross_attention", "ffn"] * 2
    assert [s.layer for s in found[1].sites] == [0] * 3 + [1] * 3
    assert [s.index for s in found[1].sites] == list(range(6))


def test_a_plain_tower() -> None:
    (stream,) = streams(Tower(Block(), Block(), Block()), tokens())
    assert (stream.main, stream.lanes, stream.stem, stream.final_norm) == (True, 1, "stem", "norm")
    assert [(s.index, s.layer, s.module) for s in stream.sites] == [(k, k // 2, f"blocks.{k // 2}") for k in range(6)]


def test_the_input_is_the_stem_where_nothing_stands_before() -> None:
    (stream,) = streams(nn.Sequential(Block(), Block()), tokens())
    assert (stream.stem, stream.final_norm, len(stream.sites)) == ("0", None, 4)


def test_a_block_that_runs_twice_has_two_layers() -> None:
    def run(m: nn.Module, x: Tensor) -> Tensor:
        x = m.stem(x)
        for _ in range(3):
            x = m.blocks[0](x)
        return m.head(x)
    (stream,) = streams(Calls(run, stem=nn.Linear(DIM, DIM), blocks=nn.ModuleList([Block()]), head=nn.Linear(DIM, 3)), tokens())
    assert [s.layer for s in stream.sites] == [0, 0, 1, 1, 2, 2]
    assert {s.module for s in stream.sites} == {"blocks.0"}


def test_two_towers_are_two_main_streams_in_order_of_use() -> None:
    model = Calls(lambda m, x, y: m.head(torch.cat([m.right(y), m.left(x)], -1)), left=Tower(Block()), right=Tower(Block()), head=nn.Linear(6, 2))
    found = streams(model, tokens(), tokens() + 1)
    assert [(s.main, s.stem, s.final_norm) for s in found] == [(True, "right.stem", "right.norm"), (True, "left.stem", "left.norm")]


def test_towers_of_one_name_are_told_apart() -> None:
    model = Calls(lambda m, x, y: m.towers[0](x).mean(1) * m.towers[1](y).mean(1), towers=nn.ModuleList([Tower(Block()), Tower(Block())]))
    names = [s.name for s in streams(model, tokens(), tokens() + 1)]
    assert len(names) == 2 and len(set(names)) == 2


class Inner(nn.Module):
    """A branch with a residual stream of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.down, self.up = nn.LayerNorm(DIM), nn.Linear(DIM, 8), nn.Linear(8, DIM)
        self.low = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(self.norm(x))
        y = y + self.low(y)
        return x + self.up(torch.relu(y))


def test_a_stream_inside_a_branch_is_not_main() -> None:
    found = streams(Tower(Inner(), Inner()), tokens())
    assert [(s.main, len(s.sites)) for s in found][:1] == [(True, 2)]
    assert [s.main for s in found[1:]] == [False] * len(found[1:]) and sum(len(s.sites) for s in found[1:]) == 2
    assert [b.modules[0] for s in found[1:] for site in s.sites for b in site.branches] == ["blocks.0.low", "blocks.1.low"]


class Side(nn.Module):
    """An auxiliary output with a stream of its own, beside the principal one."""

    def __init__(self, returned: bool) -> None:
        super().__init__()
        self.tower, self.aux, self.f, self.returned = Tower(Block(), Block()), nn.Linear(DIM, 8), Branch(8), returned

    def forward(self, x: Tensor) -> Any:
        out, side = self.tower(x), self.aux(x)
        side = side + self.f(side)
        return (out, side) if self.returned else out


@pytest.mark.parametrize("returned", [False, True])
def test_a_stream_beside_the_principal_output_is_a_side_stream(returned: bool) -> None:
    found = streams(Side(returned), tokens())
    assert [(s.main, len(s.sites)) for s in found] == [(True, 4), (False, 1)]
    assert found[1].stem == "aux"


def test_a_pooling_head_is_no_main_stream() -> None:
    def run(m: nn.Module, x: Tensor) -> Tensor:
        x = m.norm(m.blocks(m.stem(x)))
        q = m.query.expand(x.shape[0], -1, -1)
        pooled = m.attn(q, x, x, need_weights=False)[0]
        return m.head((pooled + m.f(pooled))[:, 0])
    model = Calls(run, stem=nn.Linear(DIM, DIM), blocks=nn.Sequential(Block(), Block()), norm=nn.LayerNorm(DIM),
                  query=nn.Parameter(torch.randn(1, 1, DIM)),
                  attn=nn.MultiheadAttention(DIM, 2, batch_first=True), f=Branch(), head=nn.Linear(DIM, 3))
    found = streams(model, tokens())
    assert [(s.main, len(s.sites)) for s in found] == [(True, 4), (False, 1)]
    assert found[0].final_norm == "norm"


def test_stages_are_streams_of_their_own() -> None:
    """Where nothing carries the stream on, it ends and the next begins."""
    model = Calls(lambda m, x: m.head(m.norm(m.late(m.wider(m.early(m.stem(x)))).mean(1))), stem=nn.Linear(DIM, DIM),
                  early=nn.Sequential(Block(), Block()),
                  wider=nn.Linear(DIM, 32), late=nn.Sequential(Block(32), Block(32)), norm=nn.LayerNorm(32), head=nn.Linear(32, 3))
    found = streams(model, tokens())
    assert (found[0].main, found[0].stem, len(found[0].sites), found[0].final_norm) == (True, "stem", 4, None)
    assert (found[1].main, found[1].stem, len(found[1].sites)) == (True, "wider", 4)


# --- the final norm -----------------------------------------------------------------------------------------------------------------------

def _ending(run: Any, **parts: nn.Module) -> str | None:
    def whole(m: nn.Module, x: Tensor) -> Tensor:
        return run(m, m.blocks(m.stem(x)))
    model = Calls(whole, stem=nn.Linear(DIM, DIM), blocks=nn.Sequential(Block(), Block()), head=nn.Linear(DIM, 3), **parts)
    (stream,) = [s for s in streams(model, tokens()) if s.main]
    return stream.final_norm


@pytest.mark.parametrize(("run", "want"), [
    (lambda m, x: m.head(m.norm(x)), "norm"),
    (lambda m, x: m.norm(x), "norm"),
    (lambda m, x: m.head(x), None),
    (lambda m, x: m.head(x.mean(1)), None),
    (lambda m, x: m.norm(m.head(x).repeat(1, 1, 6)[..., :DIM]), None),      # the norm of logits is not the stream's
    (lambda m, x: m.head(m.norm(x[:, 0])), None),                           # of a part of it
    (lambda m, x: m.head(m.norm(x)[:, 0]), "norm"),
    (lambda m, x: m.head(m.norm(x.double().float())), "norm"),
    (lambda m, x: m.head(m.norm(x).mean(1)), "norm"),
])
def test_the_final_norm(run: Any, want: str | None) -> None:
    assert _ending(run, norm=nn.LayerNorm(DIM)) == want


def test_a_post_norm_stack_has_no_final_norm_unless_one_more_follows() -> None:
    class Post(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.f = nn.LayerNorm(DIM), nn.Sequential(nn.Linear(DIM, 32), nn.ReLU(), nn.Linear(32, DIM))

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(x + self.f(x))
    bare = Calls(lambda m, x: m.head(m.blocks(m.stem(x))), stem=nn.Linear(DIM, DIM), blocks=nn.Sequential(Post(), Post()), head=nn.Linear(DIM, 3))
    assert [(s.final_norm, [x.placement for x in s.sites]) for s in streams(bare, tokens())] == [(None, ["post", "post"])]
    assert [(s.final_norm, [x.placement for x in s.sites]) for s in streams(Tower(Post(), Post()), tokens())] == [("norm", ["post", "post"])]


def test_the_last_sum_before_a_final_norm_is_no_post_norm() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Sequential(nn.Linear(DIM, 32), nn.ReLU(), nn.Linear(32, DIM))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.f(x)
    (stream,) = streams(Tower(Bare(), Bare()), tokens())
    assert (stream.final_norm, [s.placement for s in stream.sites]) == ("norm", ["none", "none"])


def test_sites_of_a_wiring_are_those_of_main_streams() -> None:
    wiring = skipway.trace(Side(False), tokens())
    assert wiring.sites == wiring.streams[0].sites and len(wiring.streams) == 2


def test_streams_in_a_wrong_order_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    home = importlib.import_module("skipway.wiring.trace")          # the package's attribute of that name is the function
    plain = module.assemble
    monkeypatch.setattr(home, "assemble", lambda g, places: plain(g, places)[::-1])
    with pytest.raises(AssertionError):
        test_an_encoder_comes_before_its_decoder()


def test_a_side_stream_taken_for_main_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_head", lambda *a: False)
    with pytest.raises(AssertionError):
        test_a_pooling_head_is_no_main_stream()
