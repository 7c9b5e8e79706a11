"""discarded-sum: a residual sum is computed and never used.

What it does
    Reports an add that joins a branch to the stream and whose result no later operation and no output reads.
Why it matters
    The source shows a skip that the model does not have. In PetarV-/GAT#11 the sum went to a name that nobody read, and
    the option `residual=True` changed nothing. `torch.add` and `Tensor.add` return the sum and leave their operands as
    they are; called as a statement they do nothing.
Fires on
    `out = y + x` followed by `return y`; `y.add(x)` as a statement (`add_` was meant); a sum that only an unused local
    holds.
Quiet on
    In-place adds, whose result is the tensor itself. Sums that a model returns beside its main output, stores as state
    or hands to a hook. Sums inside a part that the chosen inputs do not reach. Adds that are no joins (masks,
    positions, losses).
What to do
    Use the sum: return it, or assign it to the name that the next line reads. `missing-skip` at the same place goes
    away with it.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.wiring.sites import Place

CODE = "SKW106"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    g = facts.graph
    for place in facts.places:
        join = place.join
        on_trunk = join.before.node in facts.trunk.cut_set or any(f.main and f.root is join.before.root for f in facts.flows)
        idle = join.branch not in facts.live and not _live_end(facts, place)
        if join.node in facts.live or not on_trunk or idle or any(g.learned[u] for u in g.users[join.node]):
            continue
        where = place.module
        name = facts.sublayer(place)
        text = f"the sum of `{name}` and its shortcut is computed and never used; return the sum, not the branch"
        severity = "note" if _left_over(facts, place) else None
        yield Hit(where, text, severity, facts.line(join.node), {"branch": name})


def _left_over(facts: Facts, place: Place) -> bool:
    """Whether the same line made sums that are used, and this is the last: the final state of a second stream, which the model's head leaves out."""
    line = facts.graph.nodes[place.join.node].where
    return any(p.join.node < place.join.node and p.join.node in facts.live and facts.graph.nodes[p.join.node].where == line for p in facts.places)


def _live_end(facts: Facts, place: Place) -> bool:
    """Whether the branch goes on without the sum; where it ends too, a whole stretch is idle, as the last layer of a second stream is."""
    return any(term.end.node in facts.live for term in place.terms)



class _Dilated(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.conv2 = nn.Conv1d(width, width, 1)

    def branch(self, x: Tensor) -> Tensor:
        return self.conv2(torch.relu(self.conv1(x)))


def _example(block: type[_Dilated]) -> Example:
    torch.manual_seed(0)
    body = nn.Sequential(*[block(8, 2**i) for i in range(3)])
    net = OrderedDict(stem=nn.Conv1d(1, 8, 1), body=body, head=nn.Conv1d(8, 1, 1))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 1, 24),), where="body.0")


def bad() -> Example:
    """`add` is called where `add_` was meant: its result goes nowhere and the bare branch is returned."""

    class Block(_Dilated):
        def forward(self, x: Tensor) -> Tensor:
            y = self.branch(x)
            y.add(x)
            return y

    return _example(Block)


def good() -> Example:
    """The in-place add changes the branch that is returned."""

    class Block(_Dilated):
        def forward(self, x: Tensor) -> Tensor:
            y = self.branch(x)
            y.add_(x)
            return y

    return _example(Block)
