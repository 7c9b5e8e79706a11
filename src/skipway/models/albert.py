"""albert: BERT with one block that is run at every depth, and narrow embeddings.

    h <- N1(h + W_o Attention(h))          N = LayerNorm; every token sees every other
    h <- N2(h + W_2 gelu(W_1 h))           the same weights and norms in all blocks
    logits = E N(gelu(W h)) + b            E is the embedding of the words, of 128 channels; a matrix brings them to the width of the stream

Two sites a block, each around one sublayer; no final norm, since the last site ends in one. Year 2019. Special: the stream is as deep as BERT's and
the model as small as one block. With another scheme, branches and norms are shared, and what else the scheme learns is each sublayer's own.
Source: Lan, Chen, Goodman, Gimpel, Sharma, Soricut, ALBERT: A Lite BERT, 2019, arXiv 1909.11942.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from skipway.models._base import Config, Row, named
from skipway.models._bert import Bert, BertConfig
from skipway.models._fields import Fields
from skipway.models._parts import initial_normal, one_set_of_norms
from skipway.nn import Attention, FeedForward, Stack


@dataclass(frozen=True, kw_only=True)
class AlbertConfig(BertConfig):
    """Numbers of an ALBERT."""

    embedded: int = 128                 # width of the embeddings
    shared_groups: int = 1              # number of different blocks; each is run blocks / shared_groups times in a row


def _size(dim: int, blocks: int, heads: int, **other: Any) -> AlbertConfig:
    return AlbertConfig(**{"dim": dim, "blocks": blocks, "heads": heads, "hidden": 4 * dim, "vocab": 30000, "activation": "gelu_tanh", **other})


SIZES: dict[str, Config] = {
    "tiny": _size(64, 2, 4, vocab=256, context=256, embedded=32),
    "base": _size(768, 12, 12), "large": _size(1024, 24, 16), "xlarge": _size(2048, 24, 16), "xxlarge": _size(4096, 12, 64),
}


class ALBERT(Bert):
    """Token ids (batch, tokens) to logits (batch, tokens, vocab)."""

    RULE = "post_norm"
    MODEL_TYPES = ("albert",)
    PREFIX = "albert."
    CLASSES = ("AlbertModel", "AlbertForMaskedLM", "AlbertForPreTraining")

    def make(self, c: AlbertConfig, rule: dict[str, Any]) -> None:
        self.around(c, c.embedded)
        self.widen = nn.Linear(c.embedded, c.dim)
        units = [(Attention(c.dim, c.heads, dropout=c.attention_dropout), FeedForward(c.dim, c.hidden, c.activation)) for _ in range(c.shared_groups)]
        branches = [branch for k in range(c.blocks) for branch in units[self.group(k)]]
        self.stack = Stack(branches, c.dim, norm=partial(nn.LayerNorm, eps=c.eps), dropout=c.dropout, **rule)
        one_set_of_norms(self.stack, [2 * self.first(self.group(k)) + part for k in range(c.blocks) for part in (0, 1)])
        initial_normal(self, 0.02)

    def group(self, block: int) -> int:
        """Which of the different blocks stands at this depth."""
        c: Any = self.config
        return int(block * c.shared_groups / c.blocks)

    def first(self, group: int) -> int:
        """The first depth at which a block stands."""
        c: Any = self.config
        return next(k for k in range(c.blocks) if self.group(k) == group)

    def enter(self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None) -> Tensor:
        x: Tensor = self.widen(super().enter(input_ids, token_type_ids, position_ids))
        return x

    @classmethod
    def read(cls, f: Fields) -> AlbertConfig:
        f.same("inner_group_num", 1)
        f.same("down_scale_factor", 1)
        f.skip("classifier_dropout_prob", "gap_size", "net_structure_type", "num_memory_blocks")
        return AlbertConfig(activation=f.activation("hidden_act", "gelu_new"), embedded=f.take("embedding_size", 128),
                            shared_groups=f.take("num_hidden_groups", 1), **cls.fields(f))

    @classmethod
    def suited(cls, config: Any, names: frozenset[str]) -> BertConfig:
        made = super().suited(config, names)
        return made if not any("sop_classifier." in n for n in names) else type(made)(**{**vars(made), "pairs": True})

    def written(self) -> dict[str, Any]:
        c: Any = self.config
        return {**super().written(), "embedding_size": c.embedded, "num_hidden_groups": c.shared_groups, "inner_group_num": 1}

    def rows(self) -> Iterator[Row]:
        c: Any = self.config
        yield from self.embedding_rows()
        yield from named("widen", "encoder.embedding_hidden_mapping_in", True)
        for g in range(c.shared_groups):
            a, m = (f"stack.layers.{2 * self.first(g) + part}" for part in (0, 1))
            theirs = f"encoder.albert_layer_groups.{g}.albert_layers.0"
            for name in ("query", "key", "value"):
                yield from named(f"{a}.branch.{name}", f"{theirs}.attention.{name}", True)
            yield from named(f"{a}.branch.output", f"{theirs}.attention.dense", True)
            yield from named(f"{a}.scheme.norm", f"{theirs}.attention.LayerNorm", True)
            yield from named(f"{m}.branch.input", f"{theirs}.ffn", True)
            yield from named(f"{m}.branch.output", f"{theirs}.ffn_output", True)
            yield from named(f"{m}.scheme.norm", f"{theirs}.full_layer_layer_norm", True)
        if self.pooler is not None:
            yield from named("pooler", "pooler", True)
        if self.pair is not None:
            yield from named("pair", "/sop_classifier.classifier", True)
        if c.head:
            yield from named("head.dense", "/predictions.dense", True)
            yield from named("head.norm", "/predictions.LayerNorm", True)
            yield Row("head.words.weight", "/predictions.decoder.weight")
            yield Row("head.words.bias", "/predictions.bias")
