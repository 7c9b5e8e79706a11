"""stream-overflow: finite operands of a residual add give an infinite sum in the deployed dtype.

What it does
    Runs the model once in the deployed dtype and reports, for each stream, the first join at which finite operands give a
    result that is not finite.
Why it matters
    No single operation is wrong: the stream grows with depth, and in float16 it passes 65504 at some add. What follows is
    NaN at the next norm, in float16 alone, so that it is looked for in the wrong place. Reported for T5 and LongT5
    (huggingface/transformers#9295, #9487, #19229) and Gemma 3 (vllm-project/vllm#17364, huggingface/transformers#36832).
Fires on
    `x + F(x)` with |x| and |F(x)| below 65504 and a sum above it, in place or not, at the first site where it happens.
Quiet on
    Later sites, which only carry the infinity on. Branches that are infinite before the add: that is the branch's own fault.
    Streams kept in float32 or bfloat16, and sums that are clamped before they are used in float16 but not infinite.
What to do
    Keep the stream in float32 or bfloat16, scale the branch down, or clamp as T5 does. `--dtype float16` looks at a model
    whose weights are in float32.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit, Spot
from skipway.rules._real import Real

CODE = "SKW701"
STAGE = "values"
SEVERITY = "error"


def mend(where: str, values: Mapping[str, Any]) -> str | None:
    return ".sites().stream_dtype(\"float32\")"


def check(facts: Facts) -> Iterator[Hit]:
    real = facts.real
    done: set[int] = set()
    for spot in real.spots:
        if id(spot.flow) in done or bool(real.value(spot.place.join.node).isfinite().all()):
            continue
        done.add(id(spot.flow))
        over = _overflows(real, spot)
        if over:
            yield _hit(real, spot, over)


def _operands(real: Real, spot: Spot) -> list[Tensor]:
    node = real.graph.nodes[spot.place.join.node]
    return [real.value(i) for i in node.ins if real.graph.nodes[i].dtype.is_floating_point]


def _overflows(real: Real, spot: Spot) -> int:
    """How many elements of the sum are infinite where all operands were finite."""
    out = real.value(spot.place.join.node)
    operands = _operands(real, spot)
    elementwise = all(_fits(t.shape, out.shape) for t in operands)
    if not elementwise:                                     # a product and a sum in one operation
        return int(out.isinf().sum()) if all(bool(t.isfinite().all()) for t in operands) else 0
    over = out.isinf()
    for t in operands:
        over = over & t.isfinite()
    return int(over.sum())


def _fits(shape: torch.Size, out: torch.Size) -> bool:
    """Whether a shape spreads to the result's."""
    return len(shape) <= len(out) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(out), strict=False))


def _hit(real: Real, spot: Spot, over: int) -> Hit:
    join = spot.place.join
    where, out = real.sublayer(spot.place), real.value(join.node)
    largest = [float(t.abs()[t.isfinite()].max()) for t in _operands(real, spot)]
    kind, limit = str(out.dtype).removeprefix("torch."), torch.finfo(out.dtype).max
    text = (f"adding `{where}` to the stream gives infinity in {over} of {out.numel()} elements: finite operands, up to "
            f"{' and '.join(f'{v:.3g}' for v in largest)}, and a sum beyond {limit:.5g} in {kind}; keep the stream in float32 or bfloat16, or scale "
            "the branch down")
    return Hit(where, text, None, real.line(join.node), {"elements": over, "largest": largest, "limit": limit, "dtype": kind})


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 32), nn.Linear(32, dim)
        nn.init.constant_(self.down.bias, 3e4)

    def branch(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(self.norm(x))))


class _Net(nn.Module):
    def __init__(self, block: type[nn.Module]) -> None:
        super().__init__()
        self.stem, self.blocks = nn.Linear(4, 16), nn.Sequential(block(), block(), block())
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x)) / 1e5
        return self.head(self.norm(x.to(self.head.weight.dtype)))


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    return Example(_Net(block).eval(), (torch.randn(2, 6, 4),), where="blocks.2", options={"stage": "values", "dtype": "float16"})


def bad() -> Example:
    """Three branches, each within the range of float16; the sum passes it at the third."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            return x + self.branch(x)

    return _example(Block)


def good() -> Example:
    """The sum is made in float32."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            return x.float() + self.branch(x.to(self.up.weight.dtype))

    return _example(Block)
