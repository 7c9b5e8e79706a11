"""bert: an encoder that fills in words, the transformer's encoder of 2017 with its norms behind the adds.

    h <- N(h + W_o Attention(h))           N = LayerNorm; every token sees every other
    h <- N(h + W_2 gelu(W_1 h))
    logits = E N(gelu(W h)) + b            E is the embedding of the words

Two sites a block, each around one sublayer; no final norm, since the last site ends in one. Year 2018. Special: words, positions and segments are
added and normed before the first block, so the stream starts normed. A pooler, tanh(W h) of the first token, stands beside the head.
Source: Devlin, Chang, Lee, Toutanova, BERT: Pre-training of Deep Bidirectional Transformers, 2018, arXiv 1810.04805.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import nn

from skipway.models._base import Config, Row, named
from skipway.models._bert import Bert, BertConfig
from skipway.models._parts import initial_normal
from skipway.nn import Attention, FeedForward, Stack


def _size(dim: int, blocks: int, heads: int, **other: Any) -> BertConfig:
    return BertConfig(**{"dim": dim, "blocks": blocks, "heads": heads, "hidden": 4 * dim, "pooler": True, "pairs": True, "dropout": 0.1,
                         "attention_dropout": 0.1, **other})


SIZES: dict[str, Config] = {
    "tiny": _size(64, 2, 4, vocab=256, context=256, dropout=0.0, attention_dropout=0.0),
    "base": _size(768, 12, 12), "large": _size(1024, 24, 16), "base-cased": _size(768, 12, 12, vocab=28996),
    "large-cased": _size(1024, 24, 16, vocab=28996),
    "minilm-l6": _size(384, 6, 12, pairs=False, head=False), "minilm-l12": _size(384, 12, 12, pairs=False, head=False),
}


class BERT(Bert):
    """Token ids (batch, tokens) to logits (batch, tokens, vocab)."""

    RULE = "post_norm"
    MODEL_TYPES = ("bert",)
    PREFIX = "bert."
    CLASSES = ("BertModel", "BertForMaskedLM", "BertForPreTraining")

    def make(self, c: BertConfig, rule: dict[str, Any]) -> None:
        self.around(c)
        branches: list[nn.Module] = []
        for _ in range(c.blocks):
            branches.append(Attention(c.dim, c.heads, dropout=c.attention_dropout))
            branches.append(FeedForward(c.dim, c.hidden, c.activation))
        self.stack = Stack(branches, c.dim, norm=partial(nn.LayerNorm, eps=c.eps), dropout=c.dropout, **rule)
        initial_normal(self, 0.02)

    def rows(self) -> Iterator[Row]:
        c: Any = self.config
        yield from self.encoder_rows()
        if self.pair is not None:
            yield from named("pair", "/cls.seq_relationship", True)
        if c.head:
            yield from named("head.dense", "/cls.predictions.transform.dense", True)
            yield from named("head.norm", "/cls.predictions.transform.LayerNorm", True)
            yield Row("head.words.weight", "/cls.predictions.decoder.weight")
            yield Row("head.words.bias", "/cls.predictions.bias")
