"""nonfinite-scale: a scale, gate or norm weight on the residual path is not finite, or was never initialised.

What it does
    Looks at every stored number or vector that multiplies what runs on the main streams or in their branches (scales, gates,
    mixers of lanes, gains, shifts and running statistics of norms) and reports those that hold NaN or infinity, or what
    uninitialised memory holds: magnitudes beyond 1e8, or nothing but numbers below 1e-30.
Why it matters
    One such tensor makes everything behind it NaN, in every element, so that the output says nothing about where it began.
    It happens when a model is built on the meta device and `to_empty()` drops what `__init__` computed, while the
    initialisation visits parameters and leaves buffers out (allenai/OLMo-core#698), or when a checkpoint lacks a key.
Fires on
    A buffer of 1 / sqrt(layer) that is NaN after `to_empty()`; a LayerScale of `torch.empty(dim)`; a norm's gain or running
    variance with an infinity in it. Each tensor once, by its own name, and not the layers that pass the NaN on.
Quiet on
    Scales of exactly zero, tiny ones such as 1e-6, single dead channels in a trained norm. Additive masks and position biases
    of minus infinity. Matrices of branches and non-finite inputs: other things than scales.
What to do
    Initialise the tensor where parameters are initialised, or compute it from the configuration in `forward`; after
    `to_empty()` call an initialisation that visits buffers, too.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.rules._real import Real
from skipway.rules._scales import PRODUCTS, vector
from skipway.wiring import operations as ops
from skipway.wiring.record import Node
from skipway.wiring.states import STORED

CODE = "SKW305"
STAGE = "values"
SEVERITY = "error"

HUGE, TINY = 1e8, 1e-30     # trained scales lie far inside; memory of other numbers read as floats rarely does


def check(facts: Facts) -> Iterator[Hit]:
    real = facts.real
    for leaf, node in _factors(real).items():
        fault = _fault(real.value(leaf))
        if fault:
            where = real.graph.nodes[leaf].name
            text = (f"`{where}` holds {fault}: everything behind it on the residual path is lost; initialise it (after to_empty(), buffers too), "
                    "or load it")
            yield Hit(where, text, None, real.line(node), {"holds": fault, "shape": list(real.graph.nodes[leaf].shape)})


def _factors(real: Real) -> dict[int, int]:
    """Stored scales, gates and norm weights on the residual path -> the first node that uses each."""
    g = real.graph
    on_path = _below(real)
    norms = {s.norm.call for s in g.state if s is not None and s.norm is not None}
    found: dict[int, int] = {}
    for node in g.nodes:
        if node.id not in on_path:
            continue
        small = node.id in g.lane or any(i in g.lane for i in node.ins)
        for i in _stored_operands(real, node, norms, small):
            for leaf in real.stored(i):
                held = g.nodes[leaf]                    # a name with "<": of a module that the forward makes, gone with its memory
                if held.dtype.is_floating_point and "<" not in held.name and (vector(held) or (small and max(held.shape) <= 16)):
                    found.setdefault(leaf, node.id)
    return found


def _stored_operands(real: Real, node: Node, norms: set[int], lanes: bool) -> list[int]:
    """Operands that scale the signal of a node: all but the signal of a norm, factors of a product, a hand-written norm's shift."""
    g = real.graph
    stored = [i for i in node.ins if not g.signal[i] and g.table[i] & STORED]
    if node.op in ops.NORMS or node.op in PRODUCTS or node.op == "lerp" or (node.op in ("add", "sub") and node.call in norms):
        return stored
    return stored if lanes and node.op in ops.MATMULS else []


def _below(real: Real) -> set[int]:
    """Nodes that descend from the start of a main stream and that an output was computed from."""
    g = real.graph
    found = {f.root.node for f in real.flows if f.main}
    for node in g.nodes:
        if node.id not in found and g.signal[node.id] and any(i in found for i in node.ins):
            found.add(node.id)
    return found & real.live


def _fault(value: Tensor) -> str | None:
    """What is wrong with the numbers of a tensor, in words; None where nothing is."""
    v = value.detach().float() if value.dtype != torch.float64 else value.detach()
    if not v.numel():
        return None
    nan, infinite = int(v.isnan().sum()), int(v.isinf().sum())
    if nan or infinite:
        told = [f"{n} {what}" for n, what in ((nan, "NaN"), (infinite, "infinite")) if n]
        return f"{' and '.join(told)} of {v.numel()} values"
    size = v.abs()
    if float(size.max()) > HUGE:
        return f"values up to {float(size.max()):.3g}, as memory that was never written"
    if 0 < float(size.max()) < TINY:
        return f"nothing above {float(size.max()):.3g}, as memory that was never written"
    return None


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 32), nn.Linear(32, dim)
        self.scale: Tensor
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * self.down(torch.relu(self.up(self.norm(x))))


def _example(lost: float) -> Example:
    torch.manual_seed(0)
    blocks = [_Block() for _ in range(3)]
    blocks[1].scale.fill_(lost)
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=nn.Sequential(*blocks), norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="blocks.1.scale", options={"stage": "values"})


def bad() -> Example:
    """A scale that is kept in a buffer holds infinity, as after `to_empty()`."""
    return _example(float("inf"))


def good() -> Example:
    """The buffer holds its scale."""
    return _example(0.5)
