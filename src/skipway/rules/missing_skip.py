"""missing-skip: a sublayer stands on the stream itself, with no path around it.

What it does
    Reports a sublayer that keeps the shape of the stream and through which every path from input to output runs,
    although the sublayers around it are bypassed by a shortcut.
Why it matters
    Without the shortcut the block replaces its input instead of refining it: the identity is lost at that depth and the
    gradient passes through F alone. Shapes are right and the model still trains, only worse, so nothing else will tell.
    Reported in znxlwm/UGATIT-pytorch#32, delira-dev/delira#91 and zsef123/EfficientNets-PyTorch#2: residual blocks
    whose forward returns the branch and never adds the input.
Fires on
    `x = x + attn(norm1(x))` followed by `x = ffn(norm2(x))`; a residual block class whose `+ x` was never written; an
    add behind a condition that is never true for these inputs. A plain net with no skip anywhere is a note, and an
    error only when it is deep.
Quiet on
    Sublayers that change the width or the resolution (a stem, patch merging, a strided inverted bottleneck: questions
    in lukemelas/EfficientNet-PyTorch#124 and d-li14/mobilenetv3.pytorch#20); skips by concatenation, as in a U-Net
    (milesial/Pytorch-UNet#252); skips that live in a wrapper or a caller (lucidrains/RETRO-pytorch#40); the layers
    before the first and after the last join.
What to do
    Add the input of the sublayer to its output, inside the block or in its caller, not in both. Where the sublayer is
    meant to stand alone, say so with `# skipway: ignore[SKW101]` on its line.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit

CODE = "SKW101"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    raise NotImplementedError


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mix = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))

    def attend(self, x: Tensor) -> Tensor:
        n = self.norm1(x)
        return x + self.mix(n, n, n, need_weights=False)[0]


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    blocks = nn.Sequential(*[block() for _ in range(3)])
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=blocks, norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="blocks.0")


def bad() -> Example:
    """The feed-forward result replaces the stream: its `x +` is missing."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            return self.ffn(self.norm2(self.attend(x)))

    return _example(Block)


def good() -> Example:
    """Both sublayers add to the stream."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            x = self.attend(x)
            return x + self.ffn(self.norm2(x))

    return _example(Block)
