"""transformer: encoder and decoder of 2017, the norm behind every add.

    h <- N(h + W_o Attention(h))           N = LayerNorm; every token sees every other in the encoder, those before in the decoder
    h <- N(h + W_o Attention(h, m))        in the decoder: m is what the encoder gives
    h <- N(h + W_2 relu(W_1 h))
    logits = E h                           E is the embedding of both sides

Two sites a block in the encoder, three in the decoder, each around one sublayer; no final norm, since the last site ends in one. Year 2017. Special:
tokens are multiplied by sqrt(dim) and waves of sines and cosines added before the first block; the stream that enters is the only state that is not
normed. The waves' order of channels is the authors' code's, all sines first. Marian's translators are of this kind (swish, a bias on the logits), and
their checkpoints are read and written.
Source: Vaswani et al., Attention Is All You Need, 2017, arXiv 1706.03762; Junczys-Dowmunt et al., Marian, 2018, arXiv 1804.00344.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from skipway._errors import CheckpointError
from skipway.models._base import Config, Model, Output, Row, named
from skipway.models._fields import ACTIVATION_WRITTEN, Fields
from skipway.models._parts import Waves, initial_normal, padded
from skipway.nn import Attention, FeedForward, Stack


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(Config):
    """Numbers of a transformer; blocks, heads and hidden are the encoder's."""

    vocab: int = 37000
    hidden: int
    decoder_blocks: int
    decoder_heads: int
    decoder_hidden: int
    context: int = 1024                 # waves are made for so many positions
    activation: str = "relu"
    pad: int | None = None              # the token whose embedding stays zero
    scaled: bool = True                 # tokens are multiplied by sqrt(dim)
    interleaved: bool = False           # waves as in the paper's formula; otherwise all sines stand first, as in its authors' code and in Marian
    logit_bias: bool = False            # a number for each word that is not trained
    dropout: float = 0.0
    attention_dropout: float = 0.0
    inner_dropout: float = 0.0          # inside the feed-forward


def _size(dim: int, blocks: int, heads: int, **other: Any) -> TransformerConfig:
    return TransformerConfig(**{"dim": dim, "blocks": blocks, "heads": heads, "hidden": 4 * dim, "decoder_blocks": blocks, "decoder_heads": heads,
                                "decoder_hidden": 4 * dim, **other})


SIZES: dict[str, Config] = {
    "tiny": _size(64, 2, 4, vocab=256, context=256), "base": _size(512, 6, 8, dropout=0.1), "big": _size(1024, 6, 16, dropout=0.3),
    "marian-opus": _size(512, 6, 8, vocab=58101, context=512, activation="silu", logit_bias=True, dropout=0.1, pad=58100),
}


class Transformer(Model):
    """Source ids (batch, tokens) and target ids so far (batch, targets) to logits (batch, targets, vocab)."""

    RULE = "post_norm"
    MODEL_TYPES = ("marian",)
    PREFIX = "model."
    IGNORED = ("embed_positions.weight", "embed_tokens.weight", "lm_head.weight")       # waves, and copies of the embedding

    def make(self, c: TransformerConfig, rule: dict[str, Any]) -> None:
        self.embed = nn.Embedding(c.vocab, c.dim, c.pad)
        self.waves = Waves(c.context, c.dim, c.interleaved)
        self.dropout = nn.Dropout(c.dropout)
        encoder, decoder = (partial(Attention, c.dim, n, dropout=c.attention_dropout) for n in (c.heads, c.decoder_heads))
        feed = partial(FeedForward, c.dim, kind=c.activation, dropout=c.inner_dropout)
        first = [branch for _ in range(c.blocks) for branch in (encoder(), feed(c.hidden))]
        second = [branch for _ in range(c.decoder_blocks) for branch in (decoder(causal=True), decoder(cross=True), feed(c.decoder_hidden))]
        self.encoder = Stack(first, c.dim, dropout=c.dropout, **rule)
        self.decoder = Stack(second, c.dim, dropout=c.dropout, per_block=3, **rule)
        self.head = nn.Linear(c.dim, c.vocab, False) if c.head else None
        self.tied = (("embed.weight", "head.weight"),) if c.head else ()
        if c.logit_bias and c.head:
            self.register_buffer("logit_bias", self.embed.weight.new_zeros(c.vocab))
        initial_normal(self, lambda path, m: c.dim ** -0.5 if path in ("embed", "head") else (2 / sum(m.get_parameter("weight").shape)) ** 0.5)

    def enter(self, ids: Tensor) -> Tensor:
        """What a stack begins with."""
        c: Any = self.config
        x = self.embed(ids) * c.dim ** 0.5 if c.scaled else self.embed(ids)
        y: Tensor = self.dropout(x + self.waves(ids).to(x.dtype))
        return y

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor, attention_mask: Tensor | None = None,
                decoder_attention_mask: Tensor | None = None, *, states: bool = False) -> Output:
        """input_ids (batch, tokens), decoder_input_ids (batch, targets); masks of their shape, 1 for a real token. The encoder's states are first."""
        memory, first, _ = self.run(self.encoder, self.enter(input_ids), states, key_mask=padded(attention_mask))
        y, later, _ = self.run(self.decoder, self.enter(decoder_input_ids), states, context=memory, context_mask=padded(attention_mask),
                               key_mask=padded(decoder_attention_mask))
        logits = None if self.head is None else self.head(y)
        bias = getattr(self, "logit_bias", None)
        return Output(logits if logits is None or bias is None else logits + bias, y, first + later)

    @classmethod
    def read(cls, f: Fields) -> TransformerConfig:
        f.same("tie_word_embeddings", True)
        f.same("share_encoder_decoder_embeddings", True)
        f.same("decoder_vocab_size", f.take("vocab_size"))
        f.same("is_decoder", False)
        for name in ("encoder_layerdrop", "decoder_layerdrop", "static_position_embeddings", "normalize_before", "add_final_layer_norm",
                     "normalize_embedding", "add_bias_logits", "extra_pos_embeddings"):
            f.same(name, *((True, False) if name == "static_position_embeddings" else (0, False)))
        f.skip("init_std", "num_hidden_layers", "num_beams", "max_length", "bad_words_ids", "classif_dropout", "classifier_dropout",
               "num_attention_heads")
        head = f.architecture("MarianMTModel", "MarianModel") == "MarianMTModel"
        return TransformerConfig(
            dim=f.take("d_model"), blocks=f.take("encoder_layers"), decoder_blocks=f.take("decoder_layers"), heads=f.take("encoder_attention_heads"),
            decoder_heads=f.take("decoder_attention_heads"), hidden=f.take("encoder_ffn_dim"), decoder_hidden=f.take("decoder_ffn_dim"),
            vocab=f.take("vocab_size"), context=f.take("max_position_embeddings", 1024), activation=f.activation("activation_function", "gelu"),
            pad=f.data.get("pad_token_id"), scaled=f.take("scale_embedding", False), interleaved=False, logit_bias=head,
            dropout=f.take("dropout", 0.1),
            attention_dropout=f.take("attention_dropout", 0.0), inner_dropout=f.take("activation_dropout", 0.0), head=head)

    def written(self) -> dict[str, Any]:
        c: Any = self.config
        if c.interleaved:
            raise CheckpointError("transformer: Marian's format has no place for interleaved waves; build it with interleaved=False")
        return {"model_type": "marian", "architectures": ["MarianMTModel" if c.head else "MarianModel"], "d_model": c.dim, "encoder_layers": c.blocks,
                "decoder_layers": c.decoder_blocks, "encoder_attention_heads": c.heads, "decoder_attention_heads": c.decoder_heads,
                "encoder_ffn_dim": c.hidden, "decoder_ffn_dim": c.decoder_hidden, "vocab_size": c.vocab, "decoder_vocab_size": c.vocab,
                "max_position_embeddings": c.context, "activation_function": ACTIVATION_WRITTEN[c.activation], "pad_token_id": c.pad,
                "scale_embedding": c.scaled, "dropout": c.dropout, "attention_dropout": c.attention_dropout, "activation_dropout": c.inner_dropout,
                "is_encoder_decoder": True, "decoder_start_token_id": c.pad or 0}

    def rows(self) -> Iterator[Row]:
        c: Any = self.config
        yield from named("embed", "shared")
        attentions = (("self_attn", "self_attn_layer_norm"), ("encoder_attn", "encoder_attn_layer_norm"))
        for side, blocks, kinds in (("encoder", c.blocks, attentions[:1]), ("decoder", c.decoder_blocks, attentions)):
            for k in range(blocks):
                theirs = f"{side}.layers.{k}"
                for place, (kind, norm) in enumerate(kinds):
                    ours = f"{side}.layers.{(len(kinds) + 1) * k + place}"
                    yield from named(f"{ours}.scheme.norm", f"{theirs}.{norm}", True)
                    for name, other in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "out")):
                        yield from named(f"{ours}.branch.{name}", f"{theirs}.{kind}.{other}_proj", True)
                ours = f"{side}.layers.{(len(kinds) + 1) * k + len(kinds)}"
                yield from named(f"{ours}.scheme.norm", f"{theirs}.final_layer_norm", True)
                yield from named(f"{ours}.branch.input", f"{theirs}.fc1", True)
                yield from named(f"{ours}.branch.output", f"{theirs}.fc2", True)
        if c.head:
            yield from named("head", "/lm_head")
        if c.head and c.logit_bias:
            yield Row("logit_bias", "/final_logits_bias", "led")
