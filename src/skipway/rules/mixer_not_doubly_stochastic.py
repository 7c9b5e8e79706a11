"""mixer-not-doubly-stochastic: a mixer that is declared or shaped doubly stochastic has row or column sums off 1 by more than 1e-3.

What it does
    Finds the n x n matrices that mix the lanes of a stream, static ones and those made for each token, and adds up their rows
    and columns. Reports a mixer without negative entries whose rows sum to 1 and whose columns do not, or the other way
    round; where doubly stochastic mixers are declared (`expect=Expect(scheme="mhc")`, a Sinkhorn by name) every mixer of which
    either sum is off.
Why it matters
    A doubly stochastic mixer neither feeds nor starves a lane: the sum over the lanes goes through any number of layers
    unchanged. With a free column sum one lane gains at each layer what another one loses, and over depth the gain is the
    product. It comes from one softmax in place of Sinkhorn's alternation or from too few iterations
    (HeddaCohenIndelman/Learning-Gumbel-Sinkhorn-Permutations-w-Pytorch#3, ROCm/aiter#1859, NVIDIA/Megatron-LM#3828).
Fires on
    `logits.softmax(-1)` as the mixer of four lanes: rows exact, columns off by a third; one or two Sinkhorn steps; a mixer made
    for each token of which some are off; einsum, matmul, a product and a sum, or lanes in a list.
Quiet on
    Sinkhorn that has converged, permutations and the identity. Mixers that are not normalised at all (plain hyper-connections,
    AltUp) where none is declared. Attention maps, adjacency matrices of graphs, read and write vectors of a lane scheme. What
    the rounding of the dtype in which the mixer was made explains.
What to do
    Alternate rows and columns, in float32, until both are within 1e-3 (20 steps at mild logits), or build the mixer of
    permutations, which are exact.
"""

import re
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.rules._mixers import DECLARED, mixers, words
from skipway.rules._real import Real

CODE = "SKW803"
STAGE = "values"
SEVERITY = "error"

NEAR, OFF = 1e-4, 1e-3
HELPERS = re.compile(r"sinkhorn|softmax|normal|project|iterat", re.IGNORECASE)          # what a method that makes a mixer calls


def check(facts: Facts) -> Iterator[Hit]:
    real = facts.real
    told: set[str] = set()
    for n, lanes in mixers(real).items():
        rows, columns = _sums(real, n)
        step = real.graph.nodes[n].shape[-1] * torch.finfo(real.graph.nodes[n].dtype).eps
        normalised = float(real.value(n).min()) >= -step and min(rows, columns) <= NEAR + step
        declared = facts.expect.scheme == "mhc" or (DECLARED.search(words(real, n)) and float(real.value(n).min()) >= 0 and max(rows, columns) < 1)
        if max(rows, columns) <= OFF + step or not (declared or normalised):
            continue
        where = _where(real, n)
        if where not in told:
            told.add(where)
            yield _hit(real, n, where, rows, columns, lanes)


def _hit(real: Real, n: int, where: str, rows: float, columns: float, lanes: int) -> Hit:
    which, off = ("column", columns) if columns >= rows else ("row", rows)
    text = (f"the mixer of {lanes} lanes `{where}` is not doubly stochastic: a {which} sum is off 1 by {off:.3g} (rows {rows:.2g}, columns "
            f"{columns:.2g}), so some lanes grow with depth and others die; alternate rows and columns until both are within {OFF:g}")
    return Hit(where, text, None, real.line(n), {"row_off": rows, "column_off": columns, "lanes": lanes})


def _sums(real: Real, n: int) -> tuple[float, float]:
    """The largest distances of a row sum and of a column sum from 1, over all matrices of a node."""
    held = real.value(n).double()
    return float((held.sum(-1) - 1).abs().max()), float((held.sum(-2) - 1).abs().max())


def _where(real: Real, n: int) -> str:
    """The method that made a matrix, else what it is made of, else the module."""
    node = real.graph.nodes[n]
    call = real.record.calls[node.call]
    methods = [m for m in real.run.makers.get(n, ()) if m not in ("forward", "__call__") and callable(getattr(type(call.module), m, None))]
    if methods:
        method = next((m for m in methods if not HELPERS.search(m)), methods[0])
        return f"{call.path}.{method}" if call.path else method
    stored = [real.graph.nodes[s].name for s in real.stored(n)]
    if node.name or len(stored) == 1:
        return node.name or stored[0]
    return call.path


class _Layer(nn.Module):
    """Lanes are (batch, lane, token, channel)."""

    def __init__(self, dim: int = 16, lanes: int = 4) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 32), nn.Linear(32, dim)
        self.logits, self.write = nn.Parameter(torch.randn(lanes, lanes)), nn.Parameter(torch.ones(lanes))

    def mixer(self) -> Tensor:
        raise NotImplementedError

    def forward(self, lanes: Tensor) -> Tensor:
        y = self.down(torch.relu(self.up(self.norm(lanes.mean(1)))))
        return torch.einsum("ij,bjtc->bitc", self.mixer(), lanes) + self.write[:, None, None] * y[:, None]


class _Lanes(nn.Module):
    def __init__(self, layer: type[nn.Module], lanes: int = 4) -> None:
        super().__init__()
        self.lanes, self.stem, self.layers = lanes, nn.Linear(4, 16), nn.Sequential(layer(), layer())
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        lanes = self.stem(x)[:, None].repeat(1, self.lanes, 1, 1)
        return self.head(self.norm(self.layers(lanes).mean(1)))


def _example(layer: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    return Example(_Lanes(layer).eval(), (torch.randn(2, 6, 4),), where="layers.0.mixer", options={"stage": "values"})


def bad() -> Example:
    """One softmax: the rows sum to 1, the columns to anything."""

    class Layer(_Layer):
        def mixer(self) -> Tensor:
            return self.logits.softmax(-1)

    return _example(Layer)


def good() -> Example:
    """Rows and columns in turn, twenty times."""

    class Layer(_Layer):
        def mixer(self) -> Tensor:
            mixer = self.logits.exp()
            for _ in range(20):
                mixer = mixer / mixer.sum(-1, keepdim=True)
                mixer = mixer / mixer.sum(-2, keepdim=True)
            return mixer

    return _example(Layer)
