"""batch-leak: what mixes along the batch axis, against models in which that axis holds tokens and against what mixes there by design."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipway

from .values import DIM, Residual, found, places

CODE = "SKW503"


def attention(batch_first: bool) -> Residual:
    return Residual(lambda m, x: x + m.attn(m.norm(x), m.norm(x), m.norm(x), need_weights=False)[0],
                    attn=nn.MultiheadAttention(DIM, 2, batch_first=batch_first))


def feed_forward() -> Residual:
    return Residual(lambda m, x: x + m.ffn(m.norm(x)))


def recurrent(kind: Any, batch_first: bool) -> Residual:
    return Residual(lambda m, x: x + m.cell(m.norm(x))[0], cell=kind(DIM, DIM, batch_first=batch_first))


def viewed(m: Any, x: Tensor) -> Tensor:
    y = m.norm(x).reshape(x.shape[1], x.shape[0], DIM)
    return x + m.attn(y, y, y, need_weights=False)[0].reshape(x.shape)


def transposed(m: Any, x: Tensor) -> Tensor:
    y = m.norm(x).transpose(0, 1)
    return x + m.attn(y, y, y, need_weights=False)[0].transpose(0, 1)


def batch_normed(m: Any, x: Tensor) -> Tensor:
    return x + m.ffn(m.bn(x.transpose(1, 2)).transpose(1, 2))


class Model(nn.Module):
    """embedding (of identities, where the input holds integers), position table, blocks, pooling, head."""

    def __init__(self, *blocks: nn.Module, table: tuple[int, ...] | None = None, pool: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.emb, self.blocks, self.norm, self.head = nn.Embedding(30, DIM), nn.Sequential(*blocks), nn.LayerNorm(DIM), nn.Linear(DIM, 3)
        self.table = nn.Parameter(torch.randn(table)) if table else None
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        x = x if x.is_floating_point() else self.emb(x)
        x = x if self.table is None else x + self.table
        x = self.norm(self.blocks(x))
        return self.head(x if self.pool is None else self.pool(x))


def inputs(first: int = 2, second: int = 6, *, integers: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 30, (first, second), generator=generator) if integers else torch.randn(first, second, DIM, generator=generator)


LEAKS: dict[str, tuple[Callable[[], nn.Module], Tensor, str]] = {
    "attention": (lambda: Model(attention(False), feed_forward()), inputs(), "blocks.0.attn"),
    "token identities": (lambda: Model(attention(False), feed_forward()), inputs(integers=True), "blocks.0.attn"),
    "a position table of the second axis": (lambda: Model(attention(False), table=(6, DIM)), inputs(8, 6), "blocks.0.attn"),
    "pooled over the second axis": (lambda: Model(attention(False), pool=lambda x: x.mean(1)), inputs(8, 6), "blocks.0.attn"),
    "a class token on the second axis": (lambda: Model(attention(False), pool=lambda x: x[:, 0]), inputs(8, 6), "blocks.0.attn"),
    "one of two": (lambda: Model(attention(True), attention(False)), inputs(8, 6), "blocks.1.attn"),
    "LSTM": (lambda: Model(recurrent(nn.LSTM, False)), inputs(), "blocks.0.cell"),
    "GRU": (lambda: Model(recurrent(nn.GRU, False), feed_forward()), inputs(), "blocks.0.cell"),
    "a view for a transpose": (lambda: Model(Residual(viewed, attn=nn.MultiheadAttention(DIM, 2))), inputs(), "blocks.0.attn"),
    "softmax over axis 0": (lambda: Model(Residual(lambda m, x: x + m.ffn(m.norm(x)) * m.g(m.norm(x)).softmax(0),
                                                   g=nn.Linear(DIM, DIM))), inputs(), ""),
    "behind a scale of zero": (lambda: Model(Residual(lambda m, x: x + m.s * m.attn(x, x, x)[0], attn=nn.MultiheadAttention(DIM, 2),
                                                      s=nn.Parameter(torch.zeros(1)))), inputs(), "blocks.0.attn"),
}
QUIET: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "batch first": (lambda: Model(attention(True), feed_forward()), inputs()),
    "transposed and back": (lambda: Model(Residual(transposed, attn=nn.MultiheadAttention(DIM, 2))), inputs()),
    "sequence first, longer than wide": (lambda: Model(attention(False), feed_forward()), inputs(6, 2)),
    "sequence first, table of the first axis": (lambda: Model(attention(False), table=(6, 1, DIM)), inputs(6, 8)),
    "sequence first, pooled over it": (lambda: Model(attention(False), pool=lambda x: x.mean(0)), inputs(6, 8)),
    "sequence first, last token": (lambda: Model(attention(False), pool=lambda x: x[-1]), inputs(6, 8)),
    "sequence first, one sample": (lambda: Model(attention(False)), inputs(6, 1)),
    "batch norm": (lambda: Model(Residual(batch_normed, bn=nn.BatchNorm1d(DIM))), inputs()),
    "batch norm without running statistics": (lambda: Model(Residual(batch_normed, bn=nn.BatchNorm1d(DIM, track_running_stats=False))), inputs()),
    "convolution": (lambda: Model(Residual(lambda m, x: x + m.c(x.transpose(1, 2)).transpose(1, 2), c=nn.Conv1d(DIM, DIM, 3, padding=1))), inputs()),
    "LSTM, batch first": (lambda: Model(recurrent(nn.LSTM, True)), inputs()),
    "one sample": (lambda: Model(attention(True)), inputs(1, 6)),
}


@pytest.mark.parametrize("name", LEAKS)
def test_fires_on(name: str) -> None:
    make, x, where = LEAKS[name]
    hits = found(CODE, make().eval(), x)
    assert len(hits) == 1 and where in hits[0].where and hits[0].severity == "error"
    assert hits[0].values == {"batch": len(x), "samples_reached": list(range(1, len(x)))}


@pytest.mark.parametrize("name", QUIET)
def test_quiet_on(name: str) -> None:
    make, x = QUIET[name]
    assert places(CODE, make().eval(), x) == []


def test_nodes_of_a_graph_and_rows_of_a_table_are_no_samples() -> None:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.own, self.mix = nn.Linear(4, DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)

        def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
            x = self.stem(x)
            return x + torch.relu(self.mix(adjacency @ self.own(x)))

    assert places(CODE, Graph().eval(), torch.randn(6, 4), torch.rand(6, 6)) == []


def test_a_sublayer_that_is_named_for_it() -> None:
    class IntersampleAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn = nn.MultiheadAttention(DIM, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.attn(x, x, x, need_weights=False)[0]

    assert places(CODE, Model(Residual(lambda m, x: x + m.attn(m.norm(x)), attn=IntersampleAttention())).eval(), inputs()) == []


def test_an_encoder_decoder_of_torch_in_both_orders() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Transformer(DIM, 2, 1, 1, 32).eval()
    generator = torch.Generator().manual_seed(0)
    source, target = torch.randn(7, 3, DIM, generator=generator), torch.randn(5, 3, DIM, generator=generator)
    assert places(CODE, model, source, target) == []
    swapped = places(CODE, model, source.transpose(0, 1).contiguous(), source.transpose(0, 1).contiguous())
    assert swapped == ["decoder.layers.0.self_attn", "encoder.layers.0.self_attn"]


def test_one_sample_leaves_a_note() -> None:
    report = skipway.check(Model(attention(False)).eval(), inputs(1, 6), stage="values", select=[CODE])
    assert report.findings == () and any("batch-leak was not looked at" in note for note in report.wiring.notes)
    report = skipway.check(Model(attention(True)).eval(), inputs(), stage="values", select=[CODE])
    assert not any("batch-leak" in note for note in report.wiring.notes)
