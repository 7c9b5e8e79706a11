"""parallel-not-declared: the block is parallel and its configuration says sequential, or the other way round.

What it does
    Compares whether the branches of a block read one state of the stream (parallel) with what is declared: an attribute
    such as `use_parallel_residual`, `parallel_attn` or `parallel_residual` on the model, its blocks or their config, or
    `expect=Expect(parallel=...)`, or a reference model.
Why it matters
    Both forms have the same parameters, so a checkpoint of one loads into the other without complaint and talks
    nonsense. Ports that ignored the flag: ml-explore/mlx-lm#586, ggml-org/ggml#139, deepspeedai/DeepSpeed#2446,
    TransformerLensOrg/TransformerLens#1644.
Fires on
    `x + attn(n1(x)) + ffn(n2(x))` under a declaration of sequential; `x = x + attn(n1(x)); x = x + ffn(n2(x))` under a
    declaration of parallel.
Quiet on
    Either form with no declaration, and either form that agrees with it. A parallel block may add in one place or in
    two, and use one norm or two (huggingface/transformers#18695, NVIDIA/TransformerEngine#625).
What to do
    Read the flag in the block's forward, or correct the configuration of the checkpoint.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit, Spot
from skipway.wiring.streams import block_of

CODE = "SKW110"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    blocks: dict[tuple[str, int], list[Spot]] = {}
    for spot in facts.spots:
        blocks.setdefault(facts.block(spot.place), []).append(spot)
    reference = _reference(facts)
    for (path, number), spots in blocks.items():
        branches = sum(len(s.site.branches) for s in spots)
        if branches < 2:
            continue
        want = facts.expect.parallel
        if want is None:
            want = facts.declared(path, "use_parallel_residual", "parallel_attn", "parallel_attention", "parallel_residual", "use_parallel_block")
        if want is None:
            want = reference.get((path, number))
        parallel = any(s.site.parallel for s in spots)
        if not isinstance(want, bool) or want == parallel:
            continue
        said = ("parallel", "sequential") if parallel else ("sequential", "parallel")
        text = f"the sublayers of this block are wired {said[0]}, declared is {said[1]}; read the flag where the block adds its branches"
        yield Hit(path or spots[0].site.module, text, None, facts.line(spots[-1].place.join.node), {"parallel": parallel, "declared": want})


def _reference(facts: Facts) -> dict[tuple[str, int], bool]:
    if facts.reference is None:
        return {}
    recovered = facts.reference.facts
    found: dict[tuple[str, int], bool] = {}
    for flow in recovered.flows:
        for place, site in zip(flow.places, flow.stream.sites, strict=True):
            key = block_of(recovered.graph, place)
            found[key] = found.get(key, False) or site.parallel
    return found


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))

    def attend(self, x: Tensor) -> Tensor:
        n = self.norm1(x)
        return self.attn(n, n, n, need_weights=False)[0]


def _example(block: type[nn.Module], parallel: bool) -> Example:
    torch.manual_seed(0)
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=nn.Sequential(block(), block()), norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="blocks.0", options={"expect": {"parallel": parallel}})


def bad() -> Example:
    """Declared parallel; the FFN reads the state after attention."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attend(x)
            return x + self.ffn(self.norm2(x))

    return _example(Block, parallel=True)


def good() -> Example:
    """Declared parallel; both branches read the block's input."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            return x + self.attend(x) + self.ffn(self.norm2(x))

    return _example(Block, parallel=True)
