"""Streams that start from a learned table or from zeros, and tables that stay tables."""

import pytest
import torch
from torch import Tensor, nn

from skipway.wiring import stems
from skipway.wiring.graph import Graph
from skipway.wiring.stems import next_stem
from skipway.wiring.structure import Stream
from skipway.wiring.trace import label

from .small import DIM, Branch, Calls, Tower, recorded, streams, tokens


class Reads(nn.Module):
    """A latent block: latents read the input, then a feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attn, self.ffn = nn.LayerNorm(DIM), nn.MultiheadAttention(DIM, 2, batch_first=True), Branch()

    def forward(self, latents: Tensor, x: Tensor) -> Tensor:
        latents = latents + self.attn(self.norm(latents), x, x, need_weights=False)[0]
        return latents + self.ffn(latents)


def _latents(m: nn.Module, x: Tensor) -> Tensor:
    z = m.make(m, x)
    for block in m.blocks:
        z = block(z, x)
    return m.head(z)


TABLES = {
    "expanded parameter": lambda m, x: m.table.expand(x.shape[0], -1, -1),
    "repeated parameter": lambda m, x: m.table.repeat(x.shape[0], 1, 1),
    "embedding": lambda m, x: m.lookup.weight.unsqueeze(0).expand(x.shape[0], -1, -1),
    "scaled": lambda m, x: (m.table * 0.5).expand(x.shape[0], -1, -1),
}


def of_table(name: str, depth: int = 2) -> nn.Module:
    return Calls(_latents, make=TABLES[name], table=nn.Parameter(torch.randn(1, 3, DIM)), lookup=nn.Embedding(3, DIM),
                 blocks=nn.ModuleList(Reads() for _ in range(depth)), head=nn.Linear(DIM, 3))


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_table_that_is_read_into_is_a_stream(name: str) -> None:
    (stream,) = [s for s in streams(of_table(name), tokens()) if s.main]
    assert [[b.kind for b in s.branches] for s in stream.sites] == [["cross_attention"], ["ffn"]] * 2
    assert [(s.placement, s.gain, s.shortcut) for s in stream.sites] == [("pre", 1.0, "identity")] * 4


def test_the_stem_is_the_table() -> None:
    found = recorded(of_table("expanded parameter"), tokens())
    stem = next_stem(Graph(found))
    assert stem is not None and (found.nodes[stem].op, found.nodes[stem].name) == ("param", "table")
    graph = label(found)
    assert graph.stems == {stem}
    assert next_stem(graph) is None, "a stem that is known is not found again"


TABLES_ONLY: dict[str, nn.Module] = {
    "positions": Calls(lambda m, x: m.tower(x + m.table), table=nn.Parameter(torch.randn(1, 5, DIM)),
                       tower=Tower(Calls(lambda m, x: x + m.f(x), f=Branch()))),
    "bias": Calls(lambda m, x: m.tower(x) + m.table, table=nn.Parameter(torch.randn(3)), tower=Tower(Calls(lambda m, x: x + m.f(x), f=Branch()))),
    "attention bias": Calls(lambda m, x: ((m.q(x) @ m.q(x).transpose(1, 2)) + m.table).softmax(-1) @ x, q=nn.Linear(DIM, DIM),
                            table=nn.Parameter(torch.randn(5, 5))),
    "class token": Calls(lambda m, x: m.tower(torch.cat([m.table.expand(x.shape[0], -1, -1), x], 1)), table=nn.Parameter(torch.randn(1, 1, DIM)),
                         tower=Tower(Calls(lambda m, x: x + m.f(x), f=Branch()))),
    "table of its own": Calls(lambda m, x: m.tower(x) + m.f(m.table)[..., :3], table=nn.Parameter(torch.randn(1, 5, DIM)), f=Branch(),
                              tower=Tower(Calls(lambda m, x: x + m.f(x), f=Branch()))),
}


@pytest.mark.parametrize("name", sorted(TABLES_ONLY))
def test_a_table_that_is_only_added_is_none(name: str) -> None:
    found = recorded(TABLES_ONLY[name], tokens())
    assert next_stem(Graph(found)) is None
    assert sum(len(s.sites) for s in streams(TABLES_ONLY[name], tokens())) == (0 if name == "attention bias" else 1)


def test_queries_of_a_decoder() -> None:
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(DIM, 2, 32, batch_first=True), 2)
    whole = Calls(lambda m, x: m.head(m.decoder(m.queries.expand(x.shape[0], -1, -1), x)), decoder=model,
                  queries=nn.Parameter(torch.randn(1, 4, DIM)),
                  head=nn.Linear(DIM, 3)).eval()
    (stream,) = _main(streams(whole, tokens()))
    kinds = [b.kind for s in stream.sites for b in s.branches]
    assert kinds[-5:] == ["cross_attention", "ffn", "self_attention", "cross_attention", "ffn"]


def _main(found: tuple[Stream, ...]) -> list[Stream]:
    return [s for s in found if s.main]


def test_a_search_that_finds_no_stem_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stems, "_enters", lambda *a: False)
    with pytest.raises((AssertionError, ValueError)):
        test_a_table_that_is_read_into_is_a_stream("expanded parameter")
