"""hook-reads-wrong-tensor: a captured module output is not the contribution or the stream it is taken for.

What it does
    For every module named in `hooks=[...]` (patterns allowed), says what its output is: a branch (a contribution to the
    stream), the stream after a join, a branch before a later scale or norm, or the pending half of a pair; and names
    the module whose output is the other.
Why it matters
    Attribution, steering and logit lenses add up contributions. Where a sublayer adds the stream itself, its output
    counts the stream once a layer, and logits stay right, so nothing raises: TransformerLensOrg/TransformerLens#1639
    (BLOOM), ndif-team/nnterp#55 (BLOOM, MPT, DBRX), TransformerLensOrg/TransformerLens#1648 (the output still passes a
    norm or a multiplier before the add).
Fires on
    A hook on an attention or MLP module that receives the shortcut and returns the sum; on a sublayer whose output is
    normed or scaled before the join, or mapped once more by a projection outside it; on a layer of a (hidden, residual)
    design, whose first output is not the stream. Always a note: the model is right, the reading is not.
Quiet on
    Hooks on modules whose output is added to the stream as it is. Modules that are not named in `hooks`.
What to do
    Hook the module that the message names, or subtract the shortcut.
"""

from collections import OrderedDict
from collections.abc import Iterator
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit, Spot
from skipway.wiring.record import Call
from skipway.wiring.sites import Term, scale_of

CODE = "SKW901"
STAGE = "graph"
SEVERITY = "note"


def check(facts: Facts) -> Iterator[Hit]:
    g = facts.graph
    ends = {t.end.node: (s, t) for s in facts.spots for t in s.place.terms}
    told: set[str] = set()
    for call in facts.record.calls[1:]:
        outs = [n for _, n in call.outs if g.signal[n]]
        if not outs or call.path in told or not any(fnmatchcase(call.path, p) or call.path.endswith("." + p) for p in facts.hooks):
            continue
        text = _judge(facts, call, outs[0], ends)
        if text:
            told.add(call.path)
            yield Hit(call.path, f"a hook on the output of `{call.path}` {text}", None, call.where)


def _judge(facts: Facts, call: Call, out: int, ends: dict[int, tuple[Spot, Term]]) -> str | None:
    g = facts.graph
    inside = [s for s in facts.spots if call.first <= s.place.join.node < call.last]
    state = g.state[out]
    join = g.joins.by_state.get(state) if state is not None else None
    layer = call.path.rpartition(".")[2].isdigit() or len(inside) > 1
    if join is not None and not layer and inside:
        own = facts.sublayer(inside[-1].place)
        return f"captures the stream after the add, not the contribution: the shortcut is in it already; the contribution is the output of `{own}`"
    if join is not None or state is None:
        return None
    for spot in facts.spots:
        if spot.place.join.node < call.last or out not in spot.place.join.region.nodes:
            continue
        if layer and inside:
            return (f"captures a branch that joins later, in `{spot.place.module or 'the model'}`: the stream at this point is "
                    "this output plus the pending residual")
        for term in spot.place.terms:
            changed = term.out_norm is not None or scale_of(term.marks, term.gain)[0] != "none"
            if changed and g.state[term.end.node] is state:
                by = facts.record.calls[term.out_norm.call].path if term.out_norm is not None else "a scale"
                return f"captures the branch before `{by}`: what joins the stream is the output of `{by}`"
            last = facts.path(term.end.node)
            if out in term.region.nodes and out < term.end.node and g.learned[term.end.node] and not call.first <= term.end.node < call.last:
                return f"captures a value inside the branch, which `{last}` maps once more: what joins the stream is the output of `{last}`"
        return None
    return None


class _Mlp(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(dim, 32), nn.Linear(32, dim)

    def forward(self, normed: Tensor, shortcut: Tensor) -> Tensor:
        return shortcut + self.down(torch.relu(self.up(normed)))


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(dim), _Mlp(dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(self.norm(x), x)


def _example(hook: str) -> Example:
    torch.manual_seed(0)
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=nn.Sequential(_Block(), _Block()), norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="mlp", options={"hooks": [hook]})


def bad() -> Example:
    """The output of `mlp` is captured as its contribution, and holds the whole stream."""
    return _example("blocks.*.mlp")


def good() -> Example:
    """The output of `mlp.down` is the contribution."""
    return _example("blocks.*.mlp.down")
