"""raw-skip-in-post-norm: in a post-norm block a shortcut bypasses the norm that its branch reads.

What it does
    Reports a join of a post-norm block whose branch reads `norm(x + F(x))` while its shortcut is the sum before that
    norm.
Why it matters
    Post-norm means that the norm's output is the stream. A shortcut around the norm makes the sublayer half pre-norm:
    the stream grows where it should keep unit variance, and checkpoints give other numbers. In NVIDIA-NeMo/Speech#4350
    the post-norm block kept the sum before the norm for its second residual.
Fires on
    As an error: `s = x + attn(x); h = norm1(s); return norm2(s + ffn(h))` where post-norm is declared
    (`expect=Expect(placement="post")`, `norm_first = False`, `do_layer_norm_before = False`). As a note: the same
    without a declaration.
Quiet on
    Post-norm with the shortcut behind the norm. Pre-norm and sandwich stacks, where every shortcut is raw. Blocks that
    are known to mix both on purpose and declare no placement get the note only.
What to do
    Take the shortcut from the norm's output: `h = norm1(x + attn(x)); return norm2(h + ffn(h))`.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit

CODE = "SKW202"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    for spot in facts.spots:
        site = spot.site
        if site.placement not in ("pre", "sandwich") or spot.place.join.before.norm is not None:
            continue
        if facts.placement_declared(spot.place.module) != "post":
            continue
        where = facts.sublayer(spot.place)
        norm = site.norm_modules[0] if site.norm_modules else "its norm"
        text = (f"`{where}` reads the output of `{norm}` but adds the raw sum from before it, and declared is post-norm; add the "
                "normed stream that the branch reads")
        yield Hit(where, text, None, facts.line(spot.place.join.node), {"norm": norm})


class _Layer(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.mix = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, dim))
        self.mix_norm, self.ffn_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)


def _example(layer: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    net = OrderedDict(stem=nn.Linear(4, 16), layers=nn.Sequential(layer(), layer()), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="layers.0", options={"expect": {"placement": "post"}})


def bad() -> Example:
    """The FFN reads the norm's output, and its shortcut is the sum from before the norm."""

    class Layer(_Layer):
        def forward(self, x: Tensor) -> Tensor:
            s = x + self.mix(x, x, x, need_weights=False)[0]
            return self.ffn_norm(s + self.ffn(self.mix_norm(s)))

    return _example(Layer)


def good() -> Example:
    """The FFN and its shortcut both read the norm's output."""

    class Layer(_Layer):
        def forward(self, x: Tensor) -> Tensor:
            h: Tensor = self.mix_norm(x + self.mix(x, x, x, need_weights=False)[0])
            return self.ffn_norm(h + self.ffn(h))

    return _example(Layer)
