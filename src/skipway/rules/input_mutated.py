"""input-mutated: a block writes in place into the tensor that its caller still holds.

What it does
    Follows storages through views and reports a write into a block's or the model's input, when that tensor is read,
    kept or returned afterwards. Both modes and the deployed dtype are looked at, as a cast that does nothing leaves an
    alias.
Why it matters
    States that were collected before the block change after the fact, and an input that is used twice is another one
    the second time. In sgl-project/sglang#28005 (found through sgl-project/sglang#27540) a fused add-and-norm wrote
    over the hidden state that the caller had stored: deep layers drifted to a cosine of 0.51 against the reference.
Fires on
    `x += F(x)` where x is the model's input, or a block's argument while the block returns another tensor; `residual =
    hidden` followed by `residual.add_(...)`; `x.to(dtype).add_(y)` where the cast is the identity for this dtype;
    `x.view(...).mul_(...)`; an in-place operation on the input that only runs in eval mode.
Quiet on
    In-place writes into a block's own results (`y = F(x); y += x`, ZQPei/deep_sort_pytorch#35); in-place activations
    behind a norm or a convolution, and behind the add; writes into caches and running statistics; an input that nobody
    reads again; a block that returns the very tensor it wrote into, for the caller goes on with the result.
What to do
    Write into the branch (`y = F(x); y += x`), form a new tensor (`x = x + F(x)`), or clone the input once.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.wiring.writes import overwritten_inputs, overwritten_states

CODE = "SKW601"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    told: set[str] = set()
    for record in (facts.record, facts.other):
        if record is None:
            continue
        mode = "" if record is facts.record else f" (in {'train' if record.training else 'eval'} mode)"
        for write, text in (*overwritten_inputs(record), *overwritten_states(record)):
            node = record.nodes[write]
            where = record.calls[node.call].path
            if where not in told:
                told.add(where)
                told_text = f"`{node.op}_` writes in place into {text}{mode}; write into a new tensor, or clone first"
                yield Hit(where, told_text, None, node.where, {"op": node.op})


class _Unit(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm1, self.mix = nn.LayerNorm(dim), nn.Linear(dim, dim)
        self.norm2, self.ffn = nn.LayerNorm(dim), nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))


class _Encoder(nn.Module):
    """Its head reads the first state besides the last one."""

    def __init__(self, unit: type[nn.Module]) -> None:
        super().__init__()
        self.stem, self.units = nn.Linear(4, 16), nn.Sequential(unit(), unit(), unit())
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        first = self.stem(x)
        last = self.units(first)
        return self.head(self.norm(torch.cat([first, last], -1)))


def _example(unit: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    return Example(_Encoder(unit).eval().requires_grad_(False), (torch.randn(2, 6, 4),), where="units.0")


def bad() -> Example:
    """`+=` on the argument changes the first state, which the caller reads once more after the units."""

    class Unit(_Unit):
        def forward(self, x: Tensor) -> Tensor:
            x += self.mix(self.norm1(x))
            return x + self.ffn(self.norm2(x))

    return _example(Unit)


def good() -> Example:
    """`+=` on the branch, which is the unit's own tensor."""

    class Unit(_Unit):
        def forward(self, x: Tensor) -> Tensor:
            y = self.mix(self.norm1(x))
            y += x
            return y + self.ffn(self.norm2(y))

    return _example(Unit)
