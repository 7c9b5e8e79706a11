"""wrong-skip-source: the shortcut is not the tensor that the branch reads.

What it does
    Compares, at each join, the shortcut with the state that the branch reads (norms aside), and reports a shortcut that
    is an older state of the stream or a state of another stream.
Why it matters
    With an older state, the sublayer in between is dropped from the stream and survives only through the next branch
    (strutive07/transformer-tensorflow2.0#14). With another stream, a decoder forgets its own state at every
    cross-attention and carries on with the encoder's (georgepar/slp#26, keg-tucn-nlp/adn#3); shapes agree as long as
    both sequences have one length.
Fires on
    `mid = x + attn(x); return x + ffn(mid)`: the attention reaches the output through the FFN alone; `memory + cross(x,
    memory)`: the query comes from x, the shortcut from memory.
Quiet on
    Parallel blocks, `x + attn(n(x)) + ffn(n(x))`, in one add or two and with one norm or two: every branch is summed
    (huggingface/transformers#18695, NVIDIA/TransformerEngine#439). Post-norm, where the shortcut is the norm's output
    and the branch reads the same. Long skips that add an early state to a late one besides the short ones.
    Cross-attention whose shortcut is the query's stream.
What to do
    Add the branch to the state it was computed from: the newest one. In a decoder, the query's stream and not the
    memory.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.wiring.sites import Place
from skipway.wiring.states import State

CODE = "SKW104"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    by_state = {p.join.after: p for p in facts.places}
    for spot in facts.spots:
        yield from _stale(facts, spot.place, by_state)
        yield from _other_stream(facts, spot.place)


def _stale(facts: Facts, place: Place, by_state: dict[State, Place]) -> Iterator[Hit]:
    """The branch reads a later state of the stream than the shortcut carries, and that state is left behind."""
    before = place.join.before
    for state in {s for n in place.join.region.hits if (s := facts.graph.state[n]) is not None and not before.has(s)}:
        newer = by_state.get(state)
        if newer is None or None in (newer.join.gain, place.join.gain) or newer.join.before is not before or not _beside(newer.module, place.module):
            continue
        goes_on = any(p.join.before.has(state) for p in facts.places)      # coupled streams, as in reversible nets
        made = facts.graph.state[newer.join.branch]
        others = [p for p in facts.places if p.join.before is before and p is not newer]
        # What is added to other states, too, is no sublayer's: positions of the boxes that a detector's decoder looks at.
        spread = made is not None and any(p.join.before is not before and facts.graph.state[p.join.branch] is made for p in facts.places)
        turn = {facts.path(n) for n in newer.join.region.nodes if facts.graph.learned[n]}
        again = turn and turn == {facts.path(n) for n in place.join.region.nodes if facts.graph.learned[n]}     # one cell run twice
        elsewhere = made is not None and any(made.node in p.join.region.nodes for p in others)     # Runge-Kutta
        if goes_on or again or spread or elsewhere:
            continue
        where, passed = facts.sublayer(place), facts.sublayer(newer)
        text = (f"the shortcut of `{where}` is the state from before `{passed}`, but its branch reads the state after it: "
                f"what `{passed}` wrote leaves the stream; add the newer state")
        yield Hit(where, text, None, facts.line(place.join.node), {"bypassed": passed})


def _beside(inner: str, outer: str) -> bool:
    """Whether two joins stand in one module, or in wrappers side by side: an add in a container around a block is a long skip."""
    return inner == outer or inner.rpartition(".")[0] == outer.rpartition(".")[0] != ""


def _other_stream(facts: Facts, place: Place) -> Iterator[Hit]:
    """The shortcut is what an attention reads as key and value, while its query comes from another stream."""
    g = facts.graph
    own = place.join.before.root
    for term in place.terms:
        last = max((n for n in term.region.nodes if n in g.attention), default=None)
        if last is None:
            continue
        query, value = (_stream_of(facts, g.attention[last][k]) for k in (0, -1))
        if query is None or query is own or value is not own or _made_from(facts, own.node, query.node):
            continue
        where = facts.path(last) if facts.path(last) != place.module else facts.sublayer(place, term)
        text = (f"the shortcut of `{where}` is the stream that it reads as key and value; its query comes from another one, which "
                "ends here; add the query's stream")
        yield Hit(where, text, None, facts.line(place.join.node))


def _made_from(facts: Facts, node: int, source: int) -> bool:
    """Whether a node was computed from another: values that are projected from the query's stream and added to what they become belong to it."""
    waiting, seen = [node], {node}
    while waiting:
        for i in facts.graph.nodes[waiting.pop()].ins:
            if i == source:
                return True
            if i > source and i not in seen:
                seen.add(i)
                waiting.append(i)
    return False


def _stream_of(facts: Facts, n: int) -> State | None:
    """The root of the stream that an operand of an attention was read from, back over its projections."""
    g = facts.graph
    roots = {f.root for f in facts.flows if f.main}
    for _ in range(200):
        state = g.state[n]
        if state is not None and (state.root in roots or g.nodes[state.root.node].op == "input") and not (g.learned[n] and state.node == n):
            return state.root
        signals = [i for i in g.nodes[n].ins if g.signal[i]]
        if not signals:
            return state.root if state is not None and g.nodes[state.root.node].op in ("embedding", "input") else None
        n = signals[0]
    return None


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mix = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.SiLU(), nn.Linear(32, dim))

    def attend(self, x: Tensor) -> Tensor:
        n = self.norm1(x)
        return self.mix(n, n, n, need_weights=False)[0]


def _example(*blocks: nn.Module) -> Example:
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=nn.Sequential(*blocks), norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="blocks.0")


def bad() -> Example:
    """The FFN reads the state after attention and is added to the state before it."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            h = x + self.attend(x)
            return x + self.ffn(self.norm2(h))

    torch.manual_seed(0)
    return _example(Block(), Block())


def good() -> Example:
    """A sequential block, and its look-alike: a parallel block, where both branches read x and both are added to it."""

    class Sequential(_Block):
        def forward(self, x: Tensor) -> Tensor:
            h = x + self.attend(x)
            return h + self.ffn(self.norm2(h))

    class Parallel(_Block):
        def forward(self, x: Tensor) -> Tensor:
            return x + self.attend(x) + self.ffn(self.norm2(x))

    torch.manual_seed(0)
    return _example(Sequential(), Parallel())
