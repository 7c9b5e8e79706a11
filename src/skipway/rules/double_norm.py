"""double-norm: a norm directly follows a norm.

What it does
    Notes a norm whose input is the output of another norm, with nothing learned in between.
Why it matters
    The second norm does almost nothing (with unit gain the first leaves nothing to norm), costs time and parameters,
    and mostly shows that two places each believe they own the norm. nn.Transformer does it by default after post-norm
    layers (pytorch/pytorch#24930, #50086, #74092), and models copied from it inherited it (facebookresearch/detr#94,
    Atten4Vis/ConditionalDETR#11). Others: Helsinki-NLP/mammoth#3, k2-fsa/snowfall#184, microsoft/Swin-Transformer#213.
Fires on
    A final norm behind post-norm blocks; a stack that ends with a norm, into a head that begins with one; an embedding
    norm followed by the first block's pre-norm. Always a note: released models have it, and taking it out breaks their
    checkpoints.
Quiet on
    Two norms with a join, a projection, an activation or pooling between them; sandwich blocks; norms on queries and
    keys behind the pre-norm and the projection; one norm output read by several branches.
What to do
    Keep one of the two, unless a checkpoint needs both.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit

CODE = "SKW205"
STAGE = "graph"
SEVERITY = "note"


def check(facts: Facts) -> Iterator[Hit]:
    g = facts.graph
    told: set[str] = set()
    for state in g.state:
        if state is None or state.norm is None or state.node not in facts.live:
            continue
        source = state.prev.prev if state.prev is not None and state.prev.via == "centred" else state.prev
        if source is None or source.norm is None or source.norm is state.norm or len(g.nodes[state.node].shape) < 2:
            continue
        if g.nodes[source.node].shape[-1] != g.nodes[state.norm.source].shape[-1]:     # rows may have been picked in between
            continue
        first, second = (facts.record.calls[n.call].path for n in (source.norm, state.norm))
        if first == second or second in told:
            continue
        told.add(second)
        text = f"`{second}` norms the output of `{first}`, which is a norm already; one of the two is enough"
        yield Hit(second, text, None, facts.line(state.node), {"first": first})


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.ffn(self.norm(x))


def _example(head: nn.Module) -> Example:
    blocks = nn.Sequential(*[_Block() for _ in range(3)])
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=blocks, norm=nn.LayerNorm(16), head=head)
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="head.0")


def bad() -> Example:
    """The stack ends with its final norm, and the head begins with another."""
    torch.manual_seed(0)
    return _example(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 3)))


def good() -> Example:
    """The final norm is the only one before the head's projection; the head's own norm stands behind a projection."""
    torch.manual_seed(0)
    return _example(nn.Sequential(nn.Linear(16, 8), nn.LayerNorm(8), nn.Linear(8, 3)))
