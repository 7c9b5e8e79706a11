"""partial-pre-norm: only some of a branch's reads of the stream pass the pre-norm.

What it does
    Reports a branch that reads one state of the stream both through a norm and without it: the query normed, the key
    and value raw.
Why it matters
    Keys and values then grow with the stream while queries do not, so attention sharpens with depth and the branch
    writes ever larger values: half of pre-norm is lost. Reported in facebookresearch/xformers#233 (the wrapper normed
    the first input only), tier4/Diffusion-Planner#239, NVIDIA/TransformerEngine#392 and
    jadore801120/attention-is-all-you-need-pytorch#142.
Fires on
    `x + attn(norm(x), x, x)` in self-attention; a norm wrapper that norms its first argument and hands on the others.
Quiet on
    Cross-attention, where key and value come from another stream with its own norm or none. Norms on queries and keys
    behind the projections. Positions added to query and key only (DETR). Parallel branches with one norm each. A branch
    that reads an early state besides the newest one.
What to do
    Norm once and read that: `n = norm(x); x + attn(n, n, n)`.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.wiring.states import State

CODE = "SKW206"
STAGE = "graph"
SEVERITY = "warning"


def check(facts: Facts) -> Iterator[Hit]:
    g = facts.graph
    for spot in facts.spots:
        before = spot.place.join.before
        for term in spot.place.terms:
            inside = set(term.region.nodes)
            for n in term.region.nodes:
                reads = [_read(facts, operand, inside, before) for operand in g.attention.get(n, ())]
                raw, normed = ({s for how, s in reads if how == want} for want in ("raw", "normed"))
                if not raw & normed:
                    continue
                where = facts.sublayer(spot.place, term)
                norm = spot.site.norm_modules[0] if spot.site.norm_modules else "the pre-norm"
                text = (f"only some of what `{where}` reads of the stream passes `{norm}`: query, key and value do not all get the "
                        "normed stream; give it to all three")
                yield Hit(where, text, None, facts.line(spot.place.join.node), {"norm": norm})
                break


def _read(facts: Facts, operand: int, inside: set[int], before: State) -> tuple[str, State | None]:
    """How an operand of an attention reads the stream ("raw", "normed", "" where it does not), and which state of it."""
    g = facts.graph
    for _ in range(64):
        signals = [i for i in g.nodes[operand].ins if g.signal[i]]
        if not signals or (operand not in inside and not g.learned[operand]):
            break
        state = g.state[signals[0]]
        if g.learned[operand] and state is not None:
            if before.has(state) and (state.norm is None or before is state):
                return "raw", state
            source = state.prev if state.norm is not None else None
            while source is not None and source.via == "centred":
                source = source.prev
            return ("normed", source) if source is not None and before.has(source) else ("", None)
        operand = signals[0]
    return "", None


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))

    def attend(self, asks: Tensor, tells: Tensor) -> Tensor:
        return self.out(nn.functional.scaled_dot_product_attention(self.query(asks), self.key(tells), self.value(tells)))


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=nn.Sequential(block(), block()), norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="blocks.0")


def bad() -> Example:
    """The query reads the normed stream, key and value the raw one."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attend(self.norm1(x), x)
            return x + self.ffn(self.norm2(x))

    return _example(Block)


def good() -> Example:
    """Query, key and value read the normed stream."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            n = self.norm1(x)
            x = x + self.attend(n, n)
            return x + self.ffn(self.norm2(x))

    return _example(Block)
