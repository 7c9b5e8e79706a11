"""branch-scale-mismatch: the branch's scale is not the declared one.

What it does
    Reads the constant that multiplies each branch before its join and compares it with
    `expect=Expect(branch_scale=...)`.
Why it matters
    A half-step feed-forward that adds a full step, or one sublayer of a scaled model that misses its multiplier, trains
    and loads as if nothing were wrong; learning rates tuned for the scaled model no longer fit. Reported in
    flashlight/flashlight#582 (half steps around a block that already adds its input) and merlresearch/tf-locoformer#1
    (the paper's 0.5 not in the code).
Fires on
    `x + F(x)` where 0.5 is declared; `x + 0.22 * attn(x)` followed by `x + ffn(x)` where 0.22 is declared.
Quiet on
    Models that declare no branch scale. The scale written on either side, as division, as `torch.add(x, y, alpha=...)`,
    or folded into a product of constants. Learned scales (LayerScale, ReZero) and scales that depend on the input,
    whose values the graph does not hold. Constants inside attention (1 / sqrt(d)) and inside activations.
What to do
    Multiply the branch by the declared constant at the join, in every sublayer, or correct the declaration.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit

CODE = "SKW306"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    raise NotImplementedError


class _Block(nn.Module):
    scale = 0.22

    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.SiLU(), nn.Linear(32, dim))

    def attend(self, x: Tensor) -> Tensor:
        n = self.norm1(x)
        return self.attn(n, n, n, need_weights=False)[0]


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=nn.Sequential(block(), block()), norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="blocks.0", options={"expect": {"branch_scale": 0.22}})


def bad() -> Example:
    """The multiplier is on attention and was forgotten on the FFN."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attend(x) * self.scale
            return x + self.ffn(self.norm2(x))

    return _example(Block)


def good() -> Example:
    """Both branches carry the multiplier, in two spellings."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attend(x) * self.scale
            return torch.add(x, self.ffn(self.norm2(x)), alpha=self.scale)

    return _example(Block)
