"""deep-post-norm: a deep post-norm stack with no residual scaling.

What it does
    Notes a main stream of post-norm sites, `norm(x + F(x))` with gain 1 and an unscaled branch, that is as deep as
    those that are known to need care.
Why it matters
    Each post-norm halves the variance that the shortcut carries, so little of the first state is left at depth, and the
    last layers get far larger gradients at the start. Such stacks train with learning-rate warm-up and a low ceiling,
    or stall (pytorch/pytorch#55270, with twelve layers; harvardnlp/annotated-transformer#13).
Fires on
    Stacks of that depth, written out or through nn.TransformerEncoder with `norm_first=False`. Always a note:
    BERT-large is one, and trains with warm-up.
Quiet on
    Shallow post-norm stacks; DeepNorm and other scaled shortcuts; post-norm with scaled or zero-initialised branch
    gates (ReZero, LayerScale); pre-norm, sandwich and output norm at any depth; batch norm behind the add in a
    convolutional net.
What to do
    Train with warm-up, or choose a scheme for depth: pre-norm, or DeepNorm (alpha on the shortcut, beta in the
    weights).
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit

CODE = "SKW307"
STAGE = "graph"
SEVERITY = "note"

DEEP = 12           # sites from where on a post-norm stream is told


def check(facts: Facts) -> Iterator[Hit]:
    for flow in facts.flows:
        if not flow.main or flow.stream is None:
            continue
        post = [s for s in flow.stream.sites if s.placement == "post"]
        plain = [s for s in post if s.gain == 1.0 and s.scale == "none"]
        if len(post) >= DEEP and len(plain) == len(post):
            text = f"{len(post)} post-norm joins in a row with no residual scaling: such a stack needs warm-up, or DeepNorm, Admin or pre-norm"
            yield Hit(post[0].module, text, None, facts.line(flow.places[0].join.node), {"sites": len(post)})


class _Layer(nn.Module):
    def __init__(self, dim: int = 8) -> None:
        super().__init__()
        self.token, self.channel = nn.Linear(4, 4), nn.Sequential(nn.Linear(dim, 16), nn.GELU(), nn.Linear(16, dim))
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def across(self, x: Tensor) -> Tensor:
        return self.token(x.transpose(1, 2)).transpose(1, 2)


def _example(layer: type[nn.Module], *tail: nn.Module) -> Example:
    torch.manual_seed(0)
    layers = nn.Sequential(*[layer() for _ in range(24)])
    net = OrderedDict(stem=nn.Linear(3, 8), layers=layers, head=nn.Sequential(*tail, nn.Linear(8, 2)))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 4, 3),), where="layers")


def bad() -> Example:
    """24 layers, 48 sites, a norm behind every sum and nothing scaled."""

    class Layer(_Layer):
        def forward(self, x: Tensor) -> Tensor:
            x = self.norm1(x + self.across(x))
            return self.norm2(x + self.channel(x))

    return _example(Layer)


def good() -> Example:
    """The same depth with the norms before the branches and one at the end."""

    class Layer(_Layer):
        def forward(self, x: Tensor) -> Tensor:
            x = x + self.across(self.norm1(x))
            return x + self.channel(self.norm2(x))

    return _example(Layer, nn.LayerNorm(8))
