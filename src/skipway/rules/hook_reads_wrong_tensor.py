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
    normed or scaled before the join; on a layer of a (hidden, residual) design, whose first output is not the stream.
    Always a note: the model is right, the reading is not.
Quiet on
    Hooks on modules whose output is added to the stream as it is. Modules that are not named in `hooks`.
What to do
    Hook the module that the message names, or subtract the shortcut.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit

CODE = "SKW901"
STAGE = "graph"
SEVERITY = "note"


def check(facts: Facts) -> Iterator[Hit]:
    raise NotImplementedError


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
