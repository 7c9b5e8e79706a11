"""What the encoders of the BERT line share: their numbers, embeddings, heads and forward."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from skipway.models._base import Config as Base
from skipway.models._base import Model, Output, Row, named
from skipway.models._fields import ACTIVATION_WRITTEN, Fields
from skipway.models._parts import Positions
from skipway.nn import Stack
from skipway.nn.feed_forward import activation


@dataclass(frozen=True, kw_only=True)
class BertConfig(Base):
    """Numbers of an encoder of this line."""

    vocab: int = 30522
    hidden: int = 3072
    context: int = 512
    types: int = 2                      # kinds of segment
    activation: str = "gelu"
    eps: float = 1e-12
    pad: int | None = 0                 # the token whose embedding stays zero
    pooler: bool = False                # tanh(W h + b) of the first token
    pairs: bool = False                 # a head of two classes on the pooler: does the second sentence follow?
    dropout: float = 0.0                # of the embeddings and of what a branch adds
    attention_dropout: float = 0.0


class Embeddings(nn.Module):
    """N(E[ids] + T[segments] + P[positions])."""

    def __init__(self, c: BertConfig, dim: int) -> None:
        super().__init__()
        self.words = nn.Embedding(c.vocab, dim, c.pad)
        self.positions = Positions(c.context, dim)
        self.types = nn.Embedding(c.types, dim)
        self.norm = nn.LayerNorm(dim, c.eps)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, ids: Tensor, segments: Tensor | None, positions: Tensor | None) -> Tensor:
        """ids, segments (batch, tokens) -> (batch, tokens, dim)."""
        x = self.words(ids) + self.types(torch.zeros_like(ids) if segments is None else segments)
        y: Tensor = self.dropout(self.norm(x + self.positions(ids, positions)))
        return y


class WordHead(nn.Module):
    """E N(f(W h)) + b: scores of the words at every place; E is the embedding."""

    def __init__(self, c: BertConfig, dim: int, function: str) -> None:
        super().__init__()
        self.dense = nn.Linear(c.dim, dim)
        self.function = activation(function)[0]
        self.norm = nn.LayerNorm(dim, c.eps)
        self.words = nn.Linear(dim, c.vocab)

    def forward(self, y: Tensor) -> Tensor:
        """(batch, tokens, dim) -> (batch, tokens, vocab)."""
        scores: Tensor = self.words(self.norm(self.function(self.dense(y))))
        return scores


class Bert(Model):
    """Token ids (batch, tokens) to logits (batch, tokens, vocab). Behind them, in extras: the pooled first token, and the scores of the pair. A
    subclass makes the stack."""

    IGNORED = ("embeddings.position_ids", "predictions.decoder.bias", "lm_head.decoder.bias")      # the last two are the head's bias again
    OLDER: ClassVar[Mapping[str, str]] = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
    CLASSES: ClassVar[tuple[str, ...]]                      # transformers' classes: without a head, with it, and with that and the pairs'
    stack: Stack

    def around(self, c: BertConfig, embedded: int | None = None, function: str | None = None) -> None:
        """Makes what stands before and behind the stack; `embedded` is the width of the embeddings where it is not that of the stream."""
        width = embedded or c.dim
        self.embed = Embeddings(c, width)
        self.pooler = nn.Linear(c.dim, c.dim) if c.pooler or c.pairs else None
        self.pair = nn.Linear(c.dim, 2) if c.pairs else None
        self.head = WordHead(c, width, function or c.activation) if c.head else None
        self.tied = (("embed.words.weight", "head.words.weight"),) if c.head else ()

    def enter(self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None) -> Tensor:
        """What the stack begins with."""
        x: Tensor = self.embed(input_ids, token_type_ids, position_ids)
        return x

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None,
                position_ids: Tensor | None = None, *, states: bool = False) -> Output:
        """input_ids (batch, tokens); attention_mask (batch, tokens), 1 for a real token; token_type_ids (batch, tokens), the segment of a token."""
        x = self.enter(input_ids, token_type_ids, position_ids)
        y, seen, _ = self.run(self.stack, x, states, key_mask=None if attention_mask is None else attention_mask.bool())
        pooled: tuple[Tensor, ...] = () if self.pooler is None else (torch.tanh(self.pooler(y[:, 0])),)
        pair = () if self.pair is None else (self.pair(pooled[0]),)
        return Output(None if self.head is None else self.head(y), y, seen, pooled + pair)

    @classmethod
    def fields(cls, f: Fields) -> dict[str, Any]:
        """The numbers that a config.json of this line tells."""
        f.same("is_decoder", False)
        f.same("add_cross_attention", False)
        f.same("tie_word_embeddings", True)
        f.same("position_embedding_type", "absolute")
        f.skip("classifier_dropout", "directionality", *(k for k in f.data if k.startswith("pooler_")))
        named = f.architecture(*cls.CLASSES)
        return {"dim": f.take("hidden_size"), "blocks": f.take("num_hidden_layers"), "heads": f.take("num_attention_heads"),
                "vocab": f.take("vocab_size"),
                "hidden": f.take("intermediate_size"), "context": f.take("max_position_embeddings", 512), "types": f.take("type_vocab_size", 2),
                "eps": f.take("layer_norm_eps", 1e-12), "pad": f.data.get("pad_token_id", 0), "dropout": f.take("hidden_dropout_prob", 0.1),
                "attention_dropout": f.take("attention_probs_dropout_prob", 0.1), "head": named != cls.CLASSES[0]}

    @classmethod
    def read(cls, f: Fields) -> BertConfig:
        return BertConfig(activation=f.activation("hidden_act", "gelu"), **cls.fields(f))

    @classmethod
    def suited(cls, config: Any, names: frozenset[str]) -> BertConfig:
        """A folder has a pooler, and the head on it, or has not; no field says so."""
        return replace(config, pooler=any(".pooler." in f".{n}" for n in names), pairs=any(".seq_relationship." in f".{n}" for n in names))

    def encoder_rows(self) -> Iterator[Row]:
        """All but the heads, as BERT and RoBERTa name it."""
        yield from self.embedding_rows()
        for k in range(self.config.blocks):
            a, m, theirs = f"stack.layers.{2 * k}", f"stack.layers.{2 * k + 1}", f"encoder.layer.{k}"
            for name in ("query", "key", "value"):
                yield from named(f"{a}.branch.{name}", f"{theirs}.attention.self.{name}", True)
            yield from named(f"{a}.branch.output", f"{theirs}.attention.output.dense", True)
            yield from named(f"{a}.scheme.norm", f"{theirs}.attention.output.LayerNorm", True)
            yield from named(f"{m}.branch.input", f"{theirs}.intermediate.dense", True)
            yield from named(f"{m}.branch.output", f"{theirs}.output.dense", True)
            yield from named(f"{m}.scheme.norm", f"{theirs}.output.LayerNorm", True)
        if self.pooler is not None:
            yield from named("pooler", "pooler.dense", True)

    def embedding_rows(self) -> Iterator[Row]:
        """The embeddings and their norm."""
        for ours, theirs in (("words", "word"), ("positions", "position"), ("types", "token_type")):
            yield from named(f"embed.{ours}", f"embeddings.{theirs}_embeddings")
        yield from named("embed.norm", "embeddings.LayerNorm", True)

    def written(self) -> dict[str, Any]:
        c: Any = self.config
        kind = self.CLASSES[-1] if c.pairs and c.head else self.CLASSES[1 if c.head else 0]
        return {"model_type": self.MODEL_TYPES[0], "architectures": [kind], "hidden_size": c.dim, "num_hidden_layers": c.blocks,
                "num_attention_heads": c.heads, "vocab_size": c.vocab, "intermediate_size": c.hidden, "max_position_embeddings": c.context,
                "type_vocab_size": c.types, "hidden_act": ACTIVATION_WRITTEN[c.activation], "layer_norm_eps": c.eps, "pad_token_id": c.pad,
                "hidden_dropout_prob": c.dropout, "attention_probs_dropout_prob": c.attention_dropout}
