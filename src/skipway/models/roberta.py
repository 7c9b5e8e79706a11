"""roberta: BERT trained longer on more, without the second sentence.

    h <- N(h + W_o Attention(h))           N = LayerNorm; every token sees every other
    h <- N(h + W_2 gelu(W_1 h))
    logits = E N(gelu(W h)) + b            E is the embedding of the words

Two sites a block, each around one sublayer; no final norm, since the last site ends in one. Year 2019. Special: positions are counted over real
tokens only and begin behind the number of the padding token, so 514 positions hold 512 tokens; one segment.
Source: Liu et al., RoBERTa: A Robustly Optimized BERT Pretraining Approach, 2019, arXiv 1907.11692.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import Tensor, nn

from skipway._errors import ShapeMismatch
from skipway.models._base import Config, Row, named
from skipway.models._bert import Bert, BertConfig
from skipway.models._parts import initial_normal
from skipway.nn import Attention, FeedForward, Stack


def _size(dim: int, blocks: int, heads: int, **other: Any) -> BertConfig:
    return BertConfig(**{"dim": dim, "blocks": blocks, "heads": heads, "hidden": 4 * dim, "vocab": 50265, "context": 514, "types": 1, "eps": 1e-5,
                         "pad": 1,
                         "dropout": 0.1, "attention_dropout": 0.1, **other})


SIZES: dict[str, Config] = {
    "tiny": _size(64, 2, 4, vocab=256, context=258, dropout=0.0, attention_dropout=0.0),
    "base": _size(768, 12, 12), "large": _size(1024, 24, 16), "distil": _size(768, 6, 12),
}


class RoBERTa(Bert):
    """Token ids (batch, tokens) to logits (batch, tokens, vocab)."""

    RULE = "post_norm"
    MODEL_TYPES = ("roberta",)
    PREFIX = "roberta."
    CLASSES = ("RobertaModel", "RobertaForMaskedLM")

    def make(self, c: BertConfig, rule: dict[str, Any]) -> None:
        self.around(c, function="gelu")
        self.embed.positions.padding_idx = c.pad
        branches: list[nn.Module] = []
        for _ in range(c.blocks):
            branches.append(Attention(c.dim, c.heads, dropout=c.attention_dropout))
            branches.append(FeedForward(c.dim, c.hidden, c.activation))
        self.stack = Stack(branches, c.dim, norm=partial(nn.LayerNorm, eps=c.eps), dropout=c.dropout, **rule)
        initial_normal(self, 0.02)

    def enter(self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None) -> Tensor:
        c: Any = self.config
        if position_ids is None:
            if input_ids.shape[1] > c.context - c.pad - 1:
                raise ShapeMismatch(f"{input_ids.shape[1]} tokens, and the model has positions for {c.context - c.pad - 1}; cut the input")
            real = input_ids.ne(c.pad).long()
            position_ids = real.cumsum(1) * real + c.pad
        return super().enter(input_ids, token_type_ids, position_ids)

    def rows(self) -> Iterator[Row]:
        c: Any = self.config
        yield from self.encoder_rows()
        if c.head:
            yield from named("head.dense", "/lm_head.dense", True)
            yield from named("head.norm", "/lm_head.layer_norm", True)
            yield Row("head.words.weight", "/lm_head.decoder.weight")
            yield Row("head.words.bias", "/lm_head.bias")
