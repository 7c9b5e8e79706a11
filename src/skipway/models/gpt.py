"""gpt: the first GPT, the decoder half of the transformer of 2017 with its norms behind the adds.

    h <- N(h + W_o Attention(h))           N = LayerNorm; causal; learned positions are added to the tokens before the first block
    h <- N(h + W_2 gelu(W_1 h))
    logits = E h                           E is the embedding of the tokens

Two sites a block, each around one sublayer; no final norm, since the last site ends in one. Year 2018. Special: the last decoder of its house whose
shortcut is normed at every site; GPT-2 moved the norms.
Source: Radford, Narasimhan, Salimans, Sutskever, Improving Language Understanding by Generative Pre-Training, 2018.
"""

from typing import Any

from skipway.models._base import Config
from skipway.models._fields import Fields
from skipway.models._gpt import GPT, GPTConfig

SIZES: dict[str, Config] = {
    "tiny": GPTConfig(dim=64, blocks=2, heads=4, vocab=256, context=256),
    "117m": GPTConfig(dim=768, blocks=12, heads=12, vocab=40478, context=512, dropout=0.1, embedding_dropout=0.1, attention_dropout=0.1),
}
FUNCTIONS = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}      # its gelu is the one through tanh


class GPT1(GPT):
    """Token ids (batch, tokens) to logits (batch, tokens, vocab)."""

    RULE = "post_norm"
    MODEL_TYPES = ("openai-gpt",)
    LM, BASE, NAMES = "OpenAIGPTLMHeadModel", "OpenAIGPTModel", ("tokens_embed", "positions_embed", "afn")

    @classmethod
    def function(cls, f: Fields) -> str:
        f.same("afn", *FUNCTIONS)
        return FUNCTIONS[f.take("afn", "gelu")]

    def written(self) -> dict[str, Any]:
        c: Any = self.config
        return {**super().written(), "afn": next(theirs for theirs, ours in FUNCTIONS.items() if ours == c.activation)}
