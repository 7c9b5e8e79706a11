"""gpt3: GPT-2's blocks, wider and deeper, every second attention a band.

    h <- h + W_o Attention_k(N(h))         N = LayerNorm; causal; blocks 0, 2, 4, ... see all tokens before, blocks 1, 3, 5, ... the last `window`
    h <- h + W_2 gelu(W_1 N(h))
    logits = E N(h)                        E is the embedding of the tokens; learned positions are added before the first block

Two sites a block, each around one sublayer; a final norm. Year 2020. Special: dense and locally banded attention take turns. No weights are public,
so there is no checkpoint format. The paper does not say how wide the band is: `window` is 256 here, as in GPT-Neo. Of its table of sizes two rows do
not hold together and are read as the count of parameters demands: 1.3b has 16 heads of 128 (the table says 24), 13b has heads of 128 beside a width
of 5140.
Source: Brown et al., Language Models are Few-Shot Learners, 2020, arXiv 2005.14165, table 2.1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from skipway._errors import CheckpointError
from skipway.models._base import Config, Row
from skipway.models._gpt import GPT, GPTConfig
from skipway.nn import Attention


@dataclass(frozen=True, kw_only=True)
class GPT3Config(GPTConfig):
    """Numbers of a GPT-3."""

    head_dim: int | None = None
    window: int = 256                   # tokens that a banded attention sees, itself included


def _size(dim: int, blocks: int, heads: int, head_dim: int) -> GPT3Config:
    return GPT3Config(dim=dim, blocks=blocks, heads=heads, head_dim=head_dim, vocab=50257, context=2048)


SIZES: dict[str, Config] = {
    "tiny": GPT3Config(dim=64, blocks=2, heads=4, vocab=256, context=256, window=8),
    "125m": _size(768, 12, 12, 64), "350m": _size(1024, 24, 16, 64), "760m": _size(1536, 24, 16, 96), "1.3b": _size(2048, 24, 16, 128),
    "2.7b": _size(2560, 32, 32, 80), "6.7b": _size(4096, 32, 32, 128), "13b": _size(5140, 40, 40, 128), "175b": _size(12288, 96, 96, 128),
}


class GPT3(GPT):
    """Token ids (batch, tokens) to logits (batch, tokens, vocab)."""

    RULE = "gpt2_init"

    def attention(self, c: GPT3Config, block: int) -> Attention:
        return Attention(c.dim, c.heads, True, head_dim=c.head_dim, window=c.window if block % 2 else None, dropout=c.attention_dropout)

    def written(self) -> dict[str, Any]:
        raise CheckpointError("gpt3: its weights were never published, so it has no checkpoint format; save its state_dict() with safetensors")

    def rows(self) -> Iterator[Row]:
        return iter(())
