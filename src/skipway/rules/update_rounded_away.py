"""update-rounded-away: branch values are lost to rounding at the add; says which share of elements did not change.

What it does
    Runs the model once in the deployed dtype and counts, at each join that is an add, the elements that a non-zero
    branch value left as they were. Reports a sublayer where this is at least a third of them, once for all blocks alike.
Why it matters
    A bfloat16 number has 8 significant bits: whatever is smaller than 1/512 of the stream's element is dropped by the add.
    A stream that grows with depth, or a branch that a small LayerScale holds back, then stops learning without any sign:
    gradients flow as if the update had been made. The usual cure, a stream in float32, is what `residual_in_fp32` of
    Mamba and the fp32 residual of Megatron-LM are for.
Fires on
    A bfloat16 stream of a few hundred with branch values below one; LayerScale of 1e-6 in bfloat16; a float32 stream
    around 1e8.
Quiet on
    Ordinary models in float32, which lose nothing, and in bfloat16, which lose some in a hundred. Branches that are exactly zero
    (zero-initialised). Streams kept in float32. Joins that are no plain add (lerp, lanes).
What to do
    Keep the stream in float32 and cast only what the branch reads, or keep the stream small (a norm on it, a scaled sum).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit, Spot
from skipway.rules._real import Real

CODE = "SKW703"
STAGE = "values"
SEVERITY = "note"


def mend(where: str, values: Mapping[str, Any]) -> str | None:
    return ".sites().stream_dtype(\"float32\")"

LEAST = 1 / 3       # at initialisation in bfloat16, the worst sites of ViT-Ti and Swin-T lose a fifth and a quarter


def check(facts: Facts) -> Iterator[Hit]:
    real = facts.real
    groups: dict[tuple[str, str], list[tuple[float, Spot]]] = {}
    for spot in real.spots:
        share = _lost(real, spot)
        if share is not None and share >= LEAST:
            pattern = re.sub(r"\d+", "*", real.sublayer(spot.place))
            groups.setdefault((spot.flow.stream.name if spot.flow.stream else "", pattern), []).append((share, spot))
    for (_, pattern), found in groups.items():
        share, spot = max(found, key=lambda pair: pair[0])
        yield _hit(real, spot, share, pattern, len(found))


def _lost(real: Real, spot: Spot) -> float | None:
    """The share of elements with a branch value that the sum does not show; None where the join is no plain add."""
    join = spot.place.join
    node = real.graph.nodes[join.node]
    if join.folded or node.op not in ("add", "sub") or set(node.ins) != {join.shortcut, join.branch} or len(node.ins) != 2:
        return None
    if node.ins[1] == join.shortcut and (node.op == "sub" or node.kwargs.get("alpha", 1) != 1):
        return None
    out, shortcut, branch = real.value(join.node), real.value(join.shortcut), real.value(join.branch)
    told = (branch != 0) & out.isfinite()
    count = int(told.sum())
    return float(((out == shortcut) & told).sum()) / count if count else None


def _hit(real: Real, spot: Spot, share: float, pattern: str, sites: int) -> Hit:
    join = spot.place.join
    where, kind = real.sublayer(spot.place), str(real.graph.nodes[join.node].dtype).removeprefix("torch.")
    stream, branch = (float(real.value(n).double().square().mean().sqrt()) for n in (join.shortcut, join.branch))
    more = f"; {sites} sites like it (`{pattern}`)" if sites > 1 else ""
    text = (f"{share:.0%} of what `{where}` adds is lost to rounding in {kind}: the stream's RMS is {stream:.3g}, the branch's {branch:.3g}{more}; "
            "keep the stream in float32")
    return Hit(where, text, None, real.line(join.node), {"share": share, "stream_rms": stream, "branch_rms": branch, "sites": sites, "dtype": kind})


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 32), nn.Linear(32, dim)

    def branch(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(self.norm(x))))


class _Net(nn.Module):
    def __init__(self, block: type[nn.Module]) -> None:
        super().__init__()
        self.stem, self.blocks = nn.Linear(4, 16), nn.Sequential(block(), block())
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x) * 500)
        return self.head(self.norm(x.to(self.head.weight.dtype)))


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    return Example(_Net(block).eval(), (torch.randn(2, 6, 4),), where="blocks.", options={"stage": "values", "dtype": "bfloat16"})


def bad() -> Example:
    """A stream of several hundred in bfloat16: its neighbours are 2 apart, and the branches write less."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            return x + self.branch(x)

    return _example(Block)


def good() -> Example:
    """The stream stays in float32; the branch computes in the deployed type."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            return x.float() + self.branch(x.to(self.up.weight.dtype))

    return _example(Block)
