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
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit, Spot

CODE = "SKW306"
STAGE = "graph"
SEVERITY = "error"


def mend(where: str, values: Mapping[str, Any]) -> str | None:
    return f".sites(module={where!r}).scale(branch={values['want'] / values['scale']:g})" if values["scale"] else None


def check(facts: Facts) -> Iterator[Hit]:
    if facts.expect.branch_scale is None:
        return
    want = float(facts.expect.branch_scale)
    ffn = next((found for kind in ("ffn", "conv") if (found := [s for s in facts.spots if any(b.kind == kind for b in s.site.branches)])), [])
    others = [s for s in facts.spots if s not in ffn]
    scaled = [s for s in others if _scale(s) is not None and abs((_scale(s) or 0.0) - want) < 1e-6]
    uniform = not ffn or 2 * len(scaled) >= max(len(others), 1)
    for spot in facts.spots if uniform else ffn:                # macaron: the half step is the feed-forward's alone
        scale = _scale(spot)
        if scale is not None and abs(scale - want) > 1e-6:
            where = facts.sublayer(spot.place)
            text = f"`{where}` is added with factor {scale:g}, declared is {want:g}; multiply the branch by {want:g} before the add"
            yield Hit(where, text, None, facts.line(spot.place.join.node), {"scale": scale, "want": want})


def _scale(spot: Spot) -> float | None:
    return spot.site.branch_scale


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
