"""self-add: both operands of an add are the same value, so the skip is a factor of two.

What it does
    Reports an add whose two operands are one and the same value, up to dropout, casts and views, and which stands where
    a residual join was meant: the value is the output of a sublayer.
Why it matters
    `x = F(x)` overwrites the name of the stream, and the `x + x` after it doubles the branch. The code reads like a
    skip, the shapes are right, and the sublayer has none. Reported in kyegomez/BitNet#32,
    LeeSureman/Flat-Lattice-Transformer#111 and facebookresearch/multimodal#305.
Fires on
    `x = attn(x); x = x + x`; `x = ffn(x); x = x + dropout(x)`; `saved = x = ffn(x); return x + saved`.
Quiet on
    `2 * x` written as such; `x + x` on values that no sublayer made (a position table added to itself, embeddings); `x
    + x.flip(1)` and `x + x.transpose(1, 2)`, which add different elements; two calls of one module on one input in
    training mode, where dropout makes them differ.
What to do
    Give the branch a name of its own (`y = attn(x); x = x + y`), or keep the stream before the sublayer runs (`shortcut
    = x`).
"""

import math
from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.wiring.states import State

CODE = "SKW102"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    g = facts.graph
    for node, a, _ in g.doubled:
        state = g.state[a]
        if state is None or len(g.nodes[node].shape) < 2 or not _could_skip(facts, state.node):
            continue
        if _first_turn(facts, node, state):
            continue
        made = facts.path(state.node)
        where = made if made and made != facts.path(node) else facts.path(node)
        name = where.rpartition(".")[2] or "the value"
        text = (f"both operands of this add are the same value, the output of `{name}`: "
                f"it doubles it and skips nothing; add the input of `{name}` instead")
        yield Hit(where, text, None, facts.line(node), {"shape": list(g.nodes[node].shape)})


def _first_turn(facts: Facts, node: int, state: State) -> bool:
    """Whether the add is the first turn of a loop that adds its own start again: `h = y; for f in fs: h = f(h + y)`."""
    g = facts.graph
    turns = [n for n in g.joins.beside(g.nodes[node]) if facts.path(n) == facts.path(node)]
    later = set(turns[1:]) - {n for n, _, _ in g.doubled} if turns[:1] == [node] else set()
    return any(g.state[i] is state for n in later for i in g.nodes[n].ins)


def _could_skip(facts: Facts, node: int) -> bool:
    """Whether a module around a node was given something of the node's shape: a stem has no input that could be added."""
    g, calls = facts.graph, facts.record.calls
    call = calls[g.nodes[node].call]
    size = math.prod(g.nodes[node].shape)
    while True:
        if any(g.signal[n] and math.prod(g.nodes[n].shape) == size for _, n in call.ins):
            return True
        if call.parent < 0 or call.parent == call.id:
            return False
        call = calls[call.parent]


class _TokenMixer(nn.Module):
    def __init__(self, dim: int = 16, tokens: int = 6) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.tokens = nn.Linear(tokens, tokens)
        self.channels = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))
        self.drop = nn.Dropout(0.1)

    def mix(self, x: Tensor) -> Tensor:
        return self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    net = OrderedDict(stem=nn.Linear(4, 16), layers=nn.Sequential(block(), block()), norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="layers")


def bad() -> Example:
    """The mixer's result takes the name of the stream, and is then added to itself."""

    class Block(_TokenMixer):
        def forward(self, x: Tensor) -> Tensor:
            x = self.mix(x)
            x = x + self.drop(x)
            return x + self.drop(self.channels(self.norm2(x)))

    return _example(Block)


def good() -> Example:
    """The mixer's result has a name of its own."""

    class Block(_TokenMixer):
        def forward(self, x: Tensor) -> Tensor:
            y = self.mix(x)
            x = x + self.drop(y)
            return x + self.drop(self.channels(self.norm2(x)))

    return _example(Block)
