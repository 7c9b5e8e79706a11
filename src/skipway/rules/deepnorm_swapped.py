"""deepnorm-swapped: DeepNorm's alpha scales the branch instead of the shortcut, or its norm is never called.

What it does
    Where DeepNorm is declared (`expect=Expect(scheme="deepnorm")`), holds each site against `norm(alpha * x + F(x))`
    with alpha > 1 and reports a constant on the branch, a gain of 1, or a norm that is registered and not called.
Why it matters
    DeepNorm trains hundreds of layers because alpha keeps the shortcut large against the branch. Swapped, it enlarges
    the branch: the opposite of what is meant, and worse than plain post-norm. In
    labmlai/annotated_deep_learning_paper_implementations#145 the sublayer was `x + alpha * F(x)` and its norm unused.
Fires on
    `norm(x + alpha * F(x))`; `x + alpha * F(x)`; `alpha * x + F(x)` with no norm behind it.
Quiet on
    `norm(alpha * x + F(x))`, with any alpha and in any order of the operands. Models that do not declare DeepNorm: a
    constant on the branch is then a legal scaling. The initial gain beta of the weights, which no graph shows
    (facebookresearch/xformers#284).
What to do
    Move alpha to the shortcut and call the norm on the sum. For an encoder of N layers alpha = (2 N) ** 0.25.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit

CODE = "SKW302"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    if facts.expect.scheme != "deepnorm":
        return
    for spot in facts.spots:
        site = spot.site
        where = facts.sublayer(spot.place)
        if site.gain is not None and abs(site.gain - 1) < 1e-6:
            scale = site.branch_scale
            on = f"; the branch is multiplied by {scale:g} instead" if site.scale == "constant" and scale is not None else ""
            text = f"DeepNorm multiplies the shortcut of `{where}` by alpha, here its gain is 1{on}; write norm(alpha * x + F(x))"
            yield Hit(where, text, None, facts.line(spot.place.join.node), {"gain": site.gain, "branch_scale": scale})
        elif site.placement != "post":
            text = f"DeepNorm norms the sum alpha * x + `{where}`, here no norm follows the add; write norm(alpha * x + F(x))"
            yield Hit(where, text, None, facts.line(spot.place.join.node), {"placement": site.placement})


_LAYERS = 4
_ALPHA = (2 * _LAYERS) ** 0.25


class _Layer(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def join(self, x: Tensor, y: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(self.join(x, self.attn(x, x, x, need_weights=False)[0]))
        return self.norm2(self.join(x, self.ffn(x)))


def _example(layer: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    layers = nn.Sequential(*[layer() for _ in range(_LAYERS)])
    net = OrderedDict(stem=nn.Linear(4, 16), layers=layers, head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="layers.0", options={"expect": {"scheme": "deepnorm"}})


def bad() -> Example:
    """Alpha enlarges the branch."""

    class Layer(_Layer):
        def join(self, x: Tensor, y: Tensor) -> Tensor:
            return x + _ALPHA * y

    return _example(Layer)


def good() -> Example:
    """Alpha enlarges the shortcut."""

    class Layer(_Layer):
        def join(self, x: Tensor, y: Tensor) -> Tensor:
            return _ALPHA * x + y

    return _example(Layer)
