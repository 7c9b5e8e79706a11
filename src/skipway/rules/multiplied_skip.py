"""multiplied-skip: the branch multiplies the stream where an add was meant.

What it does
    Reports a product of the stream and of a branch that was computed from that same state by learned operations, when
    the product carries the stream on and nothing bounds the branch.
Why it matters
    With `*` for `+` there is no identity path: a branch of zeros erases the stream, and the gradient of the stream is
    the branch. One character, in ChristophReich1996/MaxViT#8, called a severe bug there; the model trained all the
    same.
Fires on
    `x * mlp(norm(x))` where the neighbouring sublayer is `x + attn(norm(x))`; `torch.mul(x, F(x))` returned from a
    block.
Quiet on
    Gates through a sigmoid, tanh, softmax or hard sigmoid (squeeze-and-excitation, highway, GRU gates). Gated linear
    units and large-kernel attention, `u * attn(u)`, inside a branch that is added later. adaLN, `x * (1 + scale) +
    shift`, and other scales that come from a condition. A learned vector or scalar (LayerScale, ReZero).
What to do
    Write `+`. Where a gate is meant, bound it (`x * torch.sigmoid(F(x))`), or put it in the branch: `x + x * F(x)`.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit, common

CODE = "SKW105"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    g = facts.graph
    for node, a, b in g.products:
        if node not in facts.trunk.cut_set:
            continue
        for stream, branch in ((a, b), (b, a)):
            state, end = g.state[stream], g.state[branch]
            if state is None or end is None or g.gate[branch] or g.nodes[stream].shape != g.nodes[branch].shape:
                continue
            if (state.via != "join" and stream not in facts.trunk.cut_set) or end.via not in ("learned", "norm", "sum", "attention"):
                continue
            region = g.joins.reach(branch, state)
            if region is None or not region.learned or (state.via != "join" and len([n for n in region.nodes if g.learned[n]]) < 2):
                continue
            calls = facts.record.calls
            paths = list(dict.fromkeys(calls[g.nodes[n].call].path for n in region.nodes if g.learned[n]))
            where = common(paths) if common(paths) not in ("", facts.path(node)) else paths[-1]
            text = (f"`{where}` multiplies the stream: where it gives 0 the stream is lost; join it with `+`, or bound it with a "
                    "sigmoid if a gate is meant")
            yield Hit(where, text, None, facts.line(node), {"shape": list(g.nodes[node].shape)})
            break


class _ConvBlock(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(2, width), nn.GroupNorm(2, width)
        self.spatial = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.up, self.down = nn.Conv2d(width, 16, 1), nn.Conv2d(16, width, 1)
        self.gate = nn.Conv2d(width, 16, 1)


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    body = nn.Sequential(block(), block())
    net = OrderedDict(stem=nn.Conv2d(3, 8, 3, padding=1), body=body, norm=nn.GroupNorm(2, 8), head=nn.Conv2d(8, 3, 1))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 3, 8, 8),), where="body.0")


def bad() -> Example:
    """The channel branch is multiplied onto the stream."""

    class Block(_ConvBlock):
        def forward(self, x: Tensor) -> Tensor:
            x = x + self.spatial(self.norm1(x))
            return x * self.down(torch.relu(self.up(self.norm2(x))))

    return _example(Block)


def good() -> Example:
    """The channel branch is added; the product in it is a gated linear unit."""

    class Block(_ConvBlock):
        def forward(self, x: Tensor) -> Tensor:
            x = x + self.spatial(self.norm1(x))
            n = self.norm2(x)
            return x + self.down(self.up(n) * torch.sigmoid(self.gate(n)))

    return _example(Block)
