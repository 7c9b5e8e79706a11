"""discarded-branch: a sublayer runs and its result never reaches the output.

What it does
    Reports a learned sublayer that reads the stream and whose result no output of the model depends on.
Why it matters
    The sublayer costs time, gets no gradient and changes nothing: the model is shallower than it looks, and distributed
    training stops on parameters without a gradient. Reported in lucidrains/audiolm-pytorch#265 (attention's output left
    in a name that nobody reads), state-spaces/s4#30 (the layer's output ignored when the residual is off),
    lucidrains/x-transformers#4 and cyclomon/UNSB#29 (each layer of a loop reads the input, so only the last counts).
Fires on
    `a = attn(norm1(x))` followed by a line that never reads `a`; `for layer in layers: out = layer(x)`.
Quiet on
    Results returned as further outputs (router logits, attention weights, intermediate states, auxiliary heads).
    Attention weights that a caller throws away. State kept for a later call (caches, running statistics). Modules that
    never run with these inputs: they are unused, not discarded.
What to do
    Add the branch to the stream, or take the sublayer out.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit, shape
from skipway.wiring.record import Call

CODE = "SKW107"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    g, calls = facts.graph, facts.record.calls
    dead: set[int] = set()
    for call in calls[1:]:
        if call.parent in dead:
            dead.add(call.id)
            continue
        ins = [n for _, n in call.ins if g.signal[n]]
        outs = [n for _, n in call.outs if g.signal[n]]
        learned = [n for n in range(call.first, call.last) if g.learned[n]]
        if not ins or not outs or not learned or any(n in facts.live for n in _made(facts, call)):
            continue
        if g.nodes[outs[0]].shape not in [g.nodes[n].shape for n in ins]:
            continue
        dead.add(call.id)
        if not _in_block(facts, call):
            continue
        if any(calls[g.nodes[n].call].id in dead for n in ins):     # told where the dead stretch begins
            continue
        text = f"`{call.path}` runs and its result {shape(g.nodes[outs[0]].shape)} never reaches the output; add it to the stream, or do not call it"
        left = [p.join.before for p in facts.places if p.join.node not in facts.live and not set(p.join.region.nodes).isdisjoint(learned)]
        idle = bool(left) and all(not any(p.join.before is state and p.join.node in facts.live for p in facts.places) for state in left)
        severity = "note" if idle else None                     # the last layer of a second stream, all of which is left over
        yield Hit(call.path, text, severity, call.where or facts.line(learned[-1]), {"shape": list(g.nodes[outs[0]].shape)})


def _made(facts: Facts, call: Call) -> list[int]:
    """Signal that a call makes itself; what it reads anew, because somebody wrote into it before, others read as well."""
    g = facts.graph
    return [n for n in range(call.first, call.last) if g.signal[n] and g.nodes[n].op not in ("reread", "patch")]


def _in_block(facts: Facts, call: Call) -> bool:
    """Whether a residual block calls it: heads and poolers that a model runs for nothing are another matter."""
    calls = facts.record.calls
    if any(call.first <= p.join.node < call.last for p in facts.places):
        return True
    while call.parent >= 0 and call.parent != call.id:
        call = calls[call.parent]
        if any(p.call == call.id for p in facts.places):
            return True
        if call.path.rpartition(".")[2].isdigit() and any(call.first <= p.join.node < call.last for p in facts.places):
            return True
    return False


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=nn.Sequential(block(), block()), norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="blocks.0.attn")


def bad() -> Example:
    """The attention's result stays in `context`, which nothing reads."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            n = self.norm1(x)
            context, _ = self.attn(n, n, n, need_weights=False)  # noqa: RUF059  (the fault)
            return x + self.ffn(self.norm2(x))

    return _example(Block)


def good() -> Example:
    """The attention's result is added; only its weights are thrown away."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            n = self.norm1(x)
            context, _ = self.attn(n, n, n, need_weights=True)
            x = x + context
            return x + self.ffn(self.norm2(x))

    return _example(Block)
