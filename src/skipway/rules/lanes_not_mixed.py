"""lanes-not-mixed: a multi-lane scheme computes its mixing matrix and does not use it.

What it does
    Reports a lane mixer (the matrix that mixes the lanes of a hyper-connection) or its mixed lanes, when the result
    never reaches the output.
Why it matters
    Without the mix the lanes are copies that each receive the same branch: several times the memory of one stream and
    nothing else. The mixer gets no gradient. Reported in lucidrains/hyper-connections#8 (the lanes from before the mix
    were returned) and tokenbender/mHC-manifold-constrained-hyper-connections#3.
Fires on
    `mixed = H @ lanes` followed by `return lanes + write * y`; a matrix that is normalised (softmax, Sinkhorn) and
    never applied.
Quiet on
    Lanes that are mixed by einsum, matmul or broadcast sums, whatever is added before or after; a mixer that is the
    identity by design and has no matrix (identity hyper-connections); mixers that start as the identity; the read and
    write vectors of a lane scheme.
What to do
    Carry the mixed lanes on: `return H @ lanes + write * y`.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.wiring import operations as ops
from skipway.wiring.states import MIXED
from skipway.wiring.streams import ancestors

CODE = "SKW801"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    g = facts.graph
    for node in g.nodes:
        n = node.id
        if not g.marks[n] & MIXED or n in facts.live or n not in g.lane or node.op not in ops.MATMULS | {"sum"}:
            continue
        names = sorted({g.nodes[i].name for i in ancestors(g, node.ins) if g.nodes[i].op == "param" and _near(facts, i, n)})
        where = names[0] if names else facts.path(n)
        text = f"the lanes are mixed by `{where}` and the mixed lanes are never used: the unmixed ones go on; return the result of the mix"
        yield Hit(where, text, None, facts.line(n), {"lanes": g.lane[n][1]})


def _near(facts: Facts, param: int, node: int) -> bool:
    """Whether a parameter belongs to the module that mixes."""
    home = facts.path(node)
    return facts.graph.nodes[param].name.rpartition(".")[0] == home


class _Layer(nn.Module):
    """Lanes are (batch, token, lane, channel)."""

    def __init__(self, dim: int = 16, lanes: int = 2) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 32), nn.Linear(32, dim)
        self.read, self.write = nn.Parameter(torch.full((lanes,), 1 / lanes)), nn.Parameter(torch.ones(lanes))
        self.mixer = nn.Parameter(torch.eye(lanes) + 0.1)

    def branch(self, lanes: Tensor) -> Tensor:
        x = (lanes * self.read[:, None]).sum(-2)
        y: Tensor = self.down(torch.relu(self.up(self.norm(x))))
        return self.write[:, None] * y.unsqueeze(-2)


class _Lanes(nn.Module):
    def __init__(self, layer: type[nn.Module], lanes: int = 2) -> None:
        super().__init__()
        self.lanes, self.stem, self.layers = lanes, nn.Linear(4, 16), nn.Sequential(layer(), layer())
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        lanes = self.stem(x).unsqueeze(-2).repeat(1, 1, self.lanes, 1)
        return self.head(self.norm(self.layers(lanes).sum(-2)))


def _example(layer: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    return Example(_Lanes(layer).eval(), (torch.randn(2, 6, 4),), where="layers.0")


def bad() -> Example:
    """The mixed lanes are computed, and the branch is added to the unmixed ones."""

    class Layer(_Layer):
        def forward(self, lanes: Tensor) -> Tensor:
            _mixed = self.mixer @ lanes
            return lanes + self.branch(lanes)

    return _example(Layer)


def good() -> Example:
    """The branch is added to the mixed lanes."""

    class Layer(_Layer):
        def forward(self, lanes: Tensor) -> Tensor:
            mixed = self.mixer @ lanes
            return mixed + self.branch(lanes)

    return _example(Layer)
