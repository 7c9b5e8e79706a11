"""branch-off-stream: a branch is added to a stream that its own query path never reads.

What it does
    Follows the path that decides which position of the stream a branch writes to (the query of an attention, the input
    of a feed-forward), and reports a branch whose path comes from another stream than the one it is added to.
Why it matters
    Row t of the branch then has nothing to do with row t of the stream: the sublayer writes the other sequence's
    contents onto this one, position by position. It runs whenever both sequences happen to have one length. Reported in
    rexrex9/nlp_torchtext#2: the decoder's attention took its queries from the encoder's output.
Fires on
    `x + cross(memory, memory, memory)` in a decoder, which never asks with x; `text + ffn(norm(image))` in a block with
    two streams.
Quiet on
    Cross-attention with the query from the stream, whatever key and value are. Latents that read an input, query
    positions added to the query. Features of another network added on purpose at matching places: lateral and top-down
    sums of a feature pyramid, control nets, adapters, time and class embeddings, sums of two modalities.
What to do
    Take the query from the stream that the result is added to.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit

CODE = "SKW108"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    raise NotImplementedError


class _DecoderBlock(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.cross = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))

    def query(self, x: Tensor, memory: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        n = self.norm1(x)
        x = x + self.attn(n, n, n, need_weights=False)[0]
        x = x + self.cross(self.query(x, memory), memory, memory, need_weights=False)[0]
        return x + self.ffn(self.norm3(x))


class _Decoder(nn.Module):
    def __init__(self, block: type[_DecoderBlock]) -> None:
        super().__init__()
        self.target, self.source = nn.Linear(4, 16), nn.Sequential(nn.Linear(4, 16), nn.LayerNorm(16))
        self.blocks = nn.ModuleList([block(), block()])
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, target: Tensor, source: Tensor) -> Tensor:
        x, memory = self.target(target), self.source(source)
        for block in self.blocks:
            x = block(x, memory)
        return self.head(self.norm(x))


def _example(block: type[_DecoderBlock]) -> Example:
    torch.manual_seed(0)
    return Example(_Decoder(block).eval(), (torch.randn(2, 6, 4), torch.randn(2, 6, 4)), where="blocks.0")


def bad() -> Example:
    """Cross-attention asks with the memory and is added to the decoder's stream."""

    class Block(_DecoderBlock):
        def query(self, x: Tensor, memory: Tensor) -> Tensor:
            return self.norm2(memory)

    return _example(Block)


def good() -> Example:
    """Cross-attention asks with the decoder's stream."""

    class Block(_DecoderBlock):
        def query(self, x: Tensor, memory: Tensor) -> Tensor:
            return self.norm2(x)

    return _example(Block)
