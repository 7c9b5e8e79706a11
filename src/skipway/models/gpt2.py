"""gpt2: the decoder that moved its norms in front of the branches.

    h <- h + W_o Attention(N(h))           N = LayerNorm; causal; learned positions are added to the tokens before the first block
    h <- h + W_2 gelu(W_1 N(h))
    logits = E N(h)                        E is the embedding of the tokens

Two sites a block, each around one sublayer; a final norm. Year 2019. Special: the matrices that write to the stream start smaller by the square root
of the number of sublayers, so that the stream does not grow with depth at the start.
Source: Radford, Wu, Child, Luan, Amodei, Sutskever, Language Models are Unsupervised Multitask Learners, 2019.
"""

from dataclasses import replace
from typing import Any

from skipway.models._base import Config
from skipway.models._gpt import GPT, GPTConfig


def _size(dim: int, blocks: int, heads: int) -> GPTConfig:
    return GPTConfig(dim=dim, blocks=blocks, heads=heads, vocab=50257, dropout=0.1, embedding_dropout=0.1, attention_dropout=0.1)


SIZES: dict[str, Config] = {
    "tiny": GPTConfig(dim=64, blocks=2, heads=4, vocab=256, context=256),
    "124m": _size(768, 12, 12), "355m": _size(1024, 24, 16), "774m": _size(1280, 36, 20), "1.5b": _size(1600, 48, 25),
    "distil": replace(_size(768, 12, 12), blocks=6),
}


class GPT2(GPT):
    """Token ids (batch, tokens) to logits (batch, tokens, vocab)."""

    RULE = "gpt2_init"                  # pre_norm with smaller output matrices at the start
    MODEL_TYPES = ("gpt2",)
    LM, BASE, NAMES = "GPT2LMHeadModel", "GPT2Model", ("wte", "wpe", "activation_function")

    def written(self) -> dict[str, Any]:
        c: Any = self.config
        return {**super().written(), "n_inner": c.hidden}
