"""skip-mutated: an in-place operation on the branch changes the shortcut before the add.

What it does
    Reports an in-place operation that writes into the tensor, or into a view of it, which is added as the shortcut
    later.
Why it matters
    The sum is `relu(x) + F(relu(x))` where the code says `x + F(relu(x))`: half the stream's information is gone at the
    first block, and no error tells. Reported in rosinality/vq-vae-2-pytorch#60 and iduta/iresnet#2; the mechanism is
    discussed in pytorch/pytorch#5687 and pytorch/pytorch#15428.
Fires on
    A pre-activation branch that begins with `nn.ReLU(inplace=True)`, `F.leaky_relu_` or `nn.SiLU(inplace=True)`;
    `x.mul_(scale)` inside the branch; an in-place write through a view of the stream.
Quiet on
    In-place activations behind a convolution, linear layer or norm (pytorch/vision#579); in-place activations on the
    sum; a shortcut that is taken after the activation on purpose (`x = relu_(x); x + F(x)`); a shortcut that was cloned
    before.
What to do
    Take `inplace=True` from the first operation of the branch, and only from that one.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from skipway.rules._base import Example, Facts, Hit
from skipway.wiring.writes import overwritten_shortcut

CODE = "SKW602"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    told: set[str] = set()
    for place in facts.places:
        write = overwritten_shortcut(facts.graph, place.join.shortcut, place.call)
        if write is None:
            continue
        node = facts.graph.nodes[write]
        where = facts.path(write)
        if where not in told:
            told.add(where)
            name = facts.sublayer(place)
            text = (f"`{node.op}_` changes in place the tensor that the skip around `{name}` adds later: the skip is no longer the "
                    "stream; use the out-of-place form")
            yield Hit(where, text, None, node.where, {"op": node.op, "branch": name})


class _Unit(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(width, width, 3, padding=3, dilation=3)
        self.conv2 = nn.Conv1d(width, width, 3, padding=1)

    def activate(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(self.activate(x))
        y = self.conv2(functional.leaky_relu(y, 0.1, inplace=True))
        return x + y


def _example(unit: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    net = OrderedDict(stem=nn.Conv1d(1, 8, 7, padding=3), units=nn.Sequential(unit(), unit(), unit()), head=nn.Conv1d(8, 1, 7, padding=3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 1, 24),), where="units.0")


def bad() -> Example:
    """The first activation works in place, so the shortcut is the activated stream."""

    class Unit(_Unit):
        def activate(self, x: Tensor) -> Tensor:
            return functional.leaky_relu_(x, 0.1)

    return _example(Unit)


def good() -> Example:
    """The first activation makes a tensor; the second may work in place on the convolution's result."""

    class Unit(_Unit):
        def activate(self, x: Tensor) -> Tensor:
            return functional.leaky_relu(x, 0.1)

    return _example(Unit)
