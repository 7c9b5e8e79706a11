"""Faults that a rule's own example does not show: each is named at its place, and its repaired twin is silent."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import skipway

from ..models.parts import DIM, Attention, Block, FeedForward, Trunk, tokens
from ..wiring.small import Calls

Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


def wrapper_that_adds_the_norm(faulty: bool) -> Made:
    """Each sublayer has a wrapper of its own, and the second one adds what it gave to its branch."""

    class PreNorm(nn.Module):
        def __init__(self, fn: nn.Module, wrong: bool = False) -> None:
            super().__init__()
            self.norm, self.fn, self.wrong = nn.LayerNorm(DIM), fn, wrong

        def forward(self, x: Tensor) -> Tensor:
            n = self.norm(x)
            return self.fn(n) + (n if self.wrong else x)

    return Trunk(*[nn.Sequential(PreNorm(Attention()), PreNorm(FeedForward(), faulty)) for _ in range(2)]), (tokens(),), {}


def norm_of_a_picked_row(faulty: bool) -> Made:
    """The head norms the class token once more."""
    def run(m: nn.Module, x: Tensor) -> Tensor:
        return m.head(m.norm(m.blocks(m.stem(x)))[:, 0])

    head = nn.Sequential(*([nn.LayerNorm(DIM)] if faulty else []), nn.Linear(DIM, 3))
    return Calls(run, stem=nn.Linear(DIM, DIM), blocks=nn.Sequential(Block(), Block()), norm=nn.LayerNorm(DIM), head=head), (tokens(),), {}


def hook_before_the_projection(faulty: bool) -> Made:
    """The hooked attention ends before its output projection, which the block calls itself."""
    class Core(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(DIM, 3 * DIM)

        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1))

    def run(m: nn.Module, x: Tensor) -> Tensor:
        return x + m.proj(m.attn(m.norm(x)))

    parts = (Core(), nn.Linear(DIM, DIM)) if faulty else (nn.Sequential(Core(), nn.Linear(DIM, DIM)), nn.Identity())
    return Trunk(Calls(run, norm=nn.LayerNorm(DIM), attn=parts[0], proj=parts[1])), (tokens(),), {"hooks": ["attn"]}


def entry_point_that_doubles(faulty: bool) -> Made:
    """Decoding adds the stream twice."""
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm, self.ffn = nn.Linear(DIM, DIM), nn.LayerNorm(DIM), FeedForward()
            self.last, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, 3)

        def decode(self, x: Tensor) -> Tensor:
            y = self.ffn(self.norm(x))
            return self.head(self.last(x + x + y if faulty else x + y))

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            return self.head(self.last(x + self.ffn(self.norm(x))))

    return Net(), (tokens(),), {"entry_points": {"decode": tokens()}}


def blocks_made_by_the_forward(faulty: bool) -> Made:
    """Blocks are built in forward, new ones each time."""
    def run(m: nn.Module, x: Tensor) -> Tensor:
        x = m.stem(x)
        for k in range(2):
            x = (Block() if faulty else m.blocks[k])(x)
        return m.head(m.norm(x))

    blocks = {} if faulty else {"blocks": nn.ModuleList([Block(), Block()])}
    return Calls(run, stem=nn.Linear(DIM, DIM), norm=nn.LayerNorm(DIM), head=nn.Linear(DIM, 3), **blocks), (tokens(),), {}


def branch_left_out_after_a_write(faulty: bool) -> Made:
    """A write through a view made the stream; the next sublayer reads it, and its result goes nowhere."""
    def add(m: nn.Module, x: Tensor) -> Tensor:
        out = m.f(m.norm(x))
        out.view(-1, DIM).add_(x.reshape(-1, DIM))
        return out

    def leave(m: nn.Module, x: Tensor) -> Tensor:
        add(m, x)
        return x

    def block(second: Callable[..., Tensor]) -> nn.Module:
        return nn.Sequential(Calls(add, norm=nn.LayerNorm(DIM), f=Attention()), Calls(second, norm=nn.LayerNorm(DIM), f=FeedForward()))

    return Trunk(block(leave if faulty else add), block(add)), (tokens(),), {}


KINDS: list[tuple[Callable[[bool], Made], str, str, str]] = [
    (wrapper_that_adds_the_norm, "SKW201", "error", "blocks.0.1.fn"),
    (norm_of_a_picked_row, "SKW205", "note", "head.0"),
    (hook_before_the_projection, "SKW901", "note", "blocks.0.attn"),
    (entry_point_that_doubles, "SKW109", "error", "ffn.down"),
    (blocks_made_by_the_forward, "SKW606", "error", "<Block>"),
    (branch_left_out_after_a_write, "SKW107", "error", "blocks.0.1"),
]


@pytest.mark.parametrize(("make", "code", "severity", "where"), KINDS, ids=lambda v: getattr(v, "__name__", None))
def test_a_kind_is_named_and_its_twin_is_silent(make: Callable[[bool], Made], code: str, severity: str, where: str) -> None:
    for faulty in (True, False):
        torch.manual_seed(0)
        model, args, options = make(faulty)
        found = [f for f in skipway.check(model.eval(), *args, **options).findings if f.code == code]
        assert [(f.severity, f.where) for f in found][:1] == ([(severity, where)] if faulty else [])


def test_the_last_sum_of_a_second_stream_is_a_note() -> None:
    """Edge states are summed in every layer and read by the next one; after the last there is no next one."""
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.edge, self.node = FeedForward(), FeedForward()

        def forward(self, node: Tensor, edge: Tensor) -> tuple[Tensor, Tensor]:
            message = self.edge(edge + node)
            edge = edge + message
            return node + self.node(message), edge

    def run(m: nn.Module, x: Tensor) -> Tensor:
        node, edge = m.nodes(x), m.edges(x)
        for layer in m.layers:
            node, edge = layer(node, edge)
        return m.head(node)

    model = Calls(run, nodes=nn.Linear(DIM, DIM), edges=nn.Linear(DIM, DIM), layers=nn.ModuleList([Layer(), Layer()]), head=nn.Linear(DIM, 3))
    assert [(f.code, f.severity, f.where) for f in skipway.check(model, tokens()).findings if f.code == "SKW106"] == [("SKW106", "note", "layers.1")]
