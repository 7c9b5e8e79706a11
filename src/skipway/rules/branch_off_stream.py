"""branch-off-stream: a branch is added to a stream that its own query path never reads.

What it does
    Follows the path that decides which position of the stream a branch writes to (the query of an attention, the input
    of a feed-forward), and reports a branch whose path comes from another stream than the one it is added to.
Why it matters
    Row t of the branch then has nothing to do with row t of the stream: the sublayer writes the other sequence's
    contents onto this one, position by position. It runs whenever both sequences happen to have one length. Reported in
    rexrex9/nlp_torchtext#2: the decoder's attention took its queries from the encoder's output.
Fires on
    `x + cross(memory, memory, memory)` in a decoder, which never asks with x; `text + ffn(norm(image))` in a block with
    two streams.
Quiet on
    Cross-attention with the query from the stream, whatever key and value are. Latents that read an input, query
    positions added to the query. Features of another network added on purpose at matching places: lateral and top-down
    sums of a feature pyramid, control nets, adapters, time and class embeddings, sums of two modalities.
What to do
    Take the query from the stream that the result is added to.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit, common
from skipway.wiring.sites import Place, Term
from skipway.wiring.states import State
from skipway.wiring.streams import ancestors

CODE = "SKW108"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    yield from _older_state(facts)
    yield from _other_query(facts)


def _older_state(facts: Facts) -> Iterator[Hit]:
    """The branch reads a state from before the block that it writes in, and nothing newer."""
    blocks = {s.place.join.after: facts.block(s.place) for s in facts.spots}
    for spot in facts.spots:
        place = spot.place
        before, home = place.join.before, facts.block(place)
        reads = {s for t in place.terms for s in t.reads}
        if not reads or any(s.depth >= before.depth for s in reads):
            continue
        state, foreign = before, 0
        newest = max(reads, key=lambda s: s.depth)
        while state is not None and state is not newest:
            foreign += state.via == "join" and blocks.get(state, home) != home
            state = state.prev  # type: ignore[assignment]
        if foreign == 0 or home[0] == "" or not any(_whole(facts, place, term, newest) for term in place.terms):
            continue
        where = facts.sublayer(place)
        text = f"`{where}` is added to the stream but reads a state from {foreign} joins before its block; let it read the state that it is added to"
        yield Hit(where, text, None, facts.line(place.join.node), {"joins_between": foreign})


def _whole(facts: Facts, place: Place, term: Term, read: State) -> bool:
    """Whether a branch is a sublayer of this stream: no single map of an older feature, nothing with joins of its own, no change of shape."""
    g = facts.graph
    learned = [n for n in term.region.nodes if g.learned[n]]
    joined = any(g.state[n] is not None and g.state[n].via == "join" for n in term.region.nodes)  # type: ignore[union-attr]
    return len(learned) > 1 and not joined and math.prod(g.nodes[read.node].shape) == math.prod(g.nodes[place.join.shortcut].shape)


def _other_query(facts: Facts) -> Iterator[Hit]:
    """A sum of the stream and an attention whose query is not read from it."""
    g = facts.graph
    main = {s.flow.root for s in facts.spots}
    for node, parts in g.terms.items():
        if len(parts) != 2 or node not in facts.live or node not in facts.trunk.cut_set:
            continue
        for stream, branch in (parts, parts[::-1]):
            state, end = g.state[stream], g.state[branch]
            if state is None or end is None or state.root not in main or g.nodes[stream].shape != g.nodes[branch].shape:
                continue
            if end.root in main and end.root is state.root:
                continue
            inside = _sublayer(facts, end.node, state.root.node)
            attends = any(n in g.attention for n in inside)
            learned = [n for n in inside if g.learned[n] and g.state[n] is not state]
            if end.via == "join" or not (attends or (len(learned) > 1 and _reads_memory(facts, learned[0]))):
                continue
            where = common([facts.path(n) for n in learned]) or facts.path(end.node)
            where = where if where != facts.path(node) else facts.path(end.node)
            text = f"`{where}` is added to a stream that its query never reads; take the query from the stream that the result is added to"
            yield Hit(where, text, None, facts.line(node))
            break


def _reads_memory(facts: Facts, learned: int) -> bool:
    """Whether a learned operation reads, norms apart, what some attention takes its keys and values from across streams."""
    g = facts.graph
    memories = set()
    for spot in facts.spots:
        for term in spot.place.terms:
            if term.kind == "cross_attention":
                last = max(n for n in term.region.nodes if n in g.attention)
                memories |= {g.state[i].root for n in ancestors(g, (g.attention[last][-1],)) for i in [n] if g.state[i] is not None}  # type: ignore[union-attr]
    states = [g.state[i] for i in g.nodes[learned].ins if g.signal[i]]
    return any(s is not None and s.root in memories for s in states)


def _sublayer(facts: Facts, end: int, origin: int) -> list[int]:
    """Nodes of the module calls around `end` that lie before it: the sublayer that ends there."""
    calls = facts.record.calls
    call = calls[facts.graph.nodes[end].call]
    if not any(n in facts.graph.attention for n in range(call.first, end)) and call.parent >= 0:
        call = calls[call.parent]
    nearest = [j.node for j in facts.graph.joins.found if call.first <= j.node < end]
    return list(range(max([call.first, *nearest]), end + 1))


class _DecoderBlock(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.cross = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))

    def query(self, x: Tensor, memory: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        n = self.norm1(x)
        x = x + self.attn(n, n, n, need_weights=False)[0]
        x = x + self.cross(self.query(x, memory), memory, memory, need_weights=False)[0]
        return x + self.ffn(self.norm3(x))


class _Decoder(nn.Module):
    def __init__(self, block: type[_DecoderBlock]) -> None:
        super().__init__()
        self.target, self.source = nn.Linear(4, 16), nn.Sequential(nn.Linear(4, 16), nn.LayerNorm(16))
        self.blocks = nn.ModuleList([block(), block()])
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, target: Tensor, source: Tensor) -> Tensor:
        x, memory = self.target(target), self.source(source)
        for block in self.blocks:
            x = block(x, memory)
        return self.head(self.norm(x))


def _example(block: type[_DecoderBlock]) -> Example:
    torch.manual_seed(0)
    return Example(_Decoder(block).eval(), (torch.randn(2, 6, 4), torch.randn(2, 6, 4)), where="blocks.0")


def bad() -> Example:
    """Cross-attention asks with the memory and is added to the decoder's stream."""

    class Block(_DecoderBlock):
        def query(self, x: Tensor, memory: Tensor) -> Tensor:
            return self.norm2(memory)

    return _example(Block)


def good() -> Example:
    """Cross-attention asks with the decoder's stream."""

    class Block(_DecoderBlock):
        def query(self, x: Tensor, memory: Tensor) -> Tensor:
            return self.norm2(x)

    return _example(Block)
