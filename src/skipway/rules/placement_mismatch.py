"""placement-mismatch: the recovered norm placement is not the declared one.

What it does
    Compares each site's placement (pre, post, sandwich, output, inner, none) with the one that
    `expect=Expect(placement=...)` declares, and reports the sites that differ, with the form that is there.
Why it matters
    Placements share parameters and shapes, so code of one loads checkpoints of another. They differ in how the stream
    grows with depth and in the warm-up they need. In mashrurmorshed/Torch-KWT#13 a class named PostNorm computes `x +
    norm(F(x))`, which is output norm, not post-norm.
Fires on
    `x + norm(F(x))` or `norm(x + F(x))` where "pre" is declared; a block with one norm where "sandwich" is declared;
    any site whose norm is absent where a placement is declared.
Quiet on
    Models with no declared placement: all six forms are legal, output norm among them (Swin V2 uses it,
    microsoft/Swin-Transformer#266; a false alarm in ofsoundof/GRL-Image-Restoration#12). Norms on queries and keys
    inside attention, on the embeddings, and the final norm. Wirings that `normed-skip` or `raw-skip-in-post-norm`
    already name at the site.
What to do
    Move the norm to the declared place, or declare the placement that is meant.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit, Spot

CODE = "SKW203"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    want = facts.expect.placement
    if want is None:
        return
    for spot in facts.spots:
        site = spot.site
        told = (want == "pre" and spot.place.join.before.norm is not None) or (want == "post" and site.placement in ("pre", "sandwich"))
        if site.placement == want or told:                  # normed-skip and raw-skip-in-post-norm say more
            continue
        if want == "post" and site.placement == "none" and _mended(facts, spot):
            continue
        where = facts.sublayer(spot.place)
        norms = ", ".join(site.norm_modules) or "no norm"
        text = f"`{where}` is wired {_FORM[site.placement]} ({norms}), declared is {_FORM[want]}; move the norm"
        yield Hit(where, text, None, facts.line(spot.place.join.node), {"placement": site.placement, "want": want})


_FORM = {"pre": "pre-norm, x + F(N(x))", "post": "post-norm, N(x + F(x))", "sandwich": "sandwich, x + N(F(N(x)))",
         "output": "output norm, x + N(F(x))",
         "inner": "with a norm inside the branch", "none": "without a norm"}


def _mended(facts: Facts, spot: Spot) -> bool:
    """A post-norm sum that a raw skip bypasses: the next site is told by raw-skip-in-post-norm."""
    after = spot.place.join.after
    return any(s.place.join.before is after and s.site.placement in ("pre", "sandwich") for s in facts.spots)


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))

    def attend(self, x: Tensor) -> Tensor:
        return self.attn(x, x, x, need_weights=False)[0]


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=nn.Sequential(block(), block()), norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="blocks.0", options={"expect": {"placement": "pre"}})


def bad() -> Example:
    """Declared pre-norm; the norms stand at the end of the branches."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            x = x + self.norm1(self.attend(x))
            return x + self.norm2(self.ffn(x))

    return _example(Block)


def good() -> Example:
    """Declared pre-norm, and the norms stand at the start of the branches."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attend(self.norm1(x))
            return x + self.ffn(self.norm2(x))

    return _example(Block)
