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

from skipway.rules._base import Example, Facts, Hit

CODE = "SKW110"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    raise NotImplementedError


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
