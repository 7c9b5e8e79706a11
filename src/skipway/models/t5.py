"""t5: encoder and decoder of pre-norm blocks whose positions are a bias on the attentions' scores.

    h <- h + W_o Attention(R(h))           R(v) = g v / rms(v); scores are not scaled; a bias for each head and distance is added to them
    h <- h + W_o Attention(R(h), m)        in the decoder: m is what the encoder gives, and there is no bias
    h <- h + W_2 relu(W_1 R(h))            v1.1: W_2 (gelu(W_1 R(h)) * W_3 R(h))
    logits = E R(h) / sqrt(dim)            E is the embedding; v1.1: W R(h) with a matrix of its own

Two sites a block in the encoder, three in the decoder, each around one sublayer; a final norm on both. Year 2019 (v1.1: 2020). No biases. Special:
the table of distances is one for all blocks of a stack, so nothing is added to the stream but what branches give; the stream is not normed or scaled
anywhere.
Source: Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, 2019, arXiv 1910.10683; v1.1: Shazeer, GLU
Variants Improve Transformer, 2020, arXiv 2002.05202, and the notes of its release.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from skipway._errors import CheckpointError
from skipway.models._base import Config, Model, Output, Row, named
from skipway.models._fields import Fields
from skipway.models._parts import WideRMSNorm, initial_normal, padded
from skipway.nn import Attention, FeedForward, RelativeBias, Stack

PROJECTIONS = {"relu": "relu", "gated-gelu": "geglu_tanh", "gated-silu": "swiglu", "gated-relu": "reglu", "gelu_new": "gelu_tanh", "silu": "silu"}


@dataclass(frozen=True, kw_only=True)
class T5Config(Config):
    """Numbers of a T5; blocks are the encoder's."""

    vocab: int = 32128
    decoder_blocks: int
    hidden: int
    head_dim: int = 64
    kind: str = "relu"                  # of the feed-forward
    buckets: int = 32
    farthest: int = 128
    eps: float = 1e-6
    tied: bool = True                   # the head is the embedding
    scaled: bool = True                 # the last state is divided by sqrt(dim)
    dropout: float = 0.0


def _size(dim: int, hidden: int, head_dim: int, blocks: int, heads: int, **other: Any) -> T5Config:
    return T5Config(dim=dim, hidden=hidden, head_dim=head_dim, blocks=blocks, decoder_blocks=blocks, heads=heads, **{"dropout": 0.1, **other})


_11 = {"kind": "geglu_tanh", "tied": False, "scaled": False}
SIZES: dict[str, Config] = {
    "tiny": _size(64, 128, 16, 2, 4, vocab=256, dropout=0.0),
    "small": _size(512, 2048, 64, 6, 8), "base": _size(768, 3072, 64, 12, 12), "large": _size(1024, 4096, 64, 24, 16),
    "3b": _size(1024, 16384, 128, 24, 32), "11b": _size(1024, 65536, 128, 24, 128),
    "1.1-small": _size(512, 1024, 64, 8, 6, **_11), "1.1-base": _size(768, 2048, 64, 12, 12, **_11),
    "1.1-large": _size(1024, 2816, 64, 24, 16, **_11),
    "1.1-xl": _size(2048, 5120, 64, 24, 32, **_11), "1.1-xxl": _size(4096, 10240, 64, 24, 64, **_11),
}


class T5(Model):
    """Source ids (batch, tokens) and target ids so far (batch, targets) to logits (batch, targets, vocab)."""

    RULE = "pre_norm"
    MODEL_TYPES = ("t5",)
    IGNORED = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
               "EncDecAttention.relative_attention_bias.weight")      # copies, and one unused

    def make(self, c: T5Config, rule: dict[str, Any]) -> None:
        self.embed = nn.Embedding(c.vocab, c.dim)
        self.dropout = nn.Dropout(c.dropout)
        self.encoder_bias = RelativeBias(c.heads, c.buckets, c.farthest)
        self.decoder_bias = RelativeBias(c.heads, c.buckets, c.farthest, causal=True)
        attention = partial(Attention, c.dim, c.heads, head_dim=c.head_dim, bias=False, scale=1.0, dropout=c.dropout)
        feed_forward = partial(FeedForward, c.dim, c.hidden, c.kind, bias=False, dropout=c.dropout)
        norm = partial(WideRMSNorm, eps=c.eps)
        encoder = [branch for _ in range(c.blocks) for branch in (attention(), feed_forward())]
        decoder = [branch for _ in range(c.decoder_blocks) for branch in (attention(causal=True), attention(cross=True), feed_forward())]
        self.encoder = Stack(encoder, c.dim, norm=norm, dropout=c.dropout, **rule)
        self.decoder = Stack(decoder, c.dim, norm=norm, dropout=c.dropout, per_block=3, **rule)
        self.head = nn.Linear(c.dim, c.vocab, False) if c.head else None
        self.tied = (("embed.weight", "head.weight"),) if c.head and c.tied else ()
        initial_normal(self, self.spread)

    def spread(self, path: str, module: nn.Module) -> float:
        """The published start: queries are small by the head's width, since scores are not scaled."""
        c: Any = self.config
        if path in ("embed", "head"):
            return 1.0
        if path.endswith(".query"):
            return float((c.dim * c.head_dim) ** -0.5)
        return float(c.dim ** -0.5) if isinstance(module, nn.Embedding) else float(module.get_parameter("weight").shape[1] ** -0.5)

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor, attention_mask: Tensor | None = None,
                decoder_attention_mask: Tensor | None = None, *, states: bool = False) -> Output:
        """input_ids (batch, tokens), decoder_input_ids (batch, targets); masks of their shape, 1 for a real token. The encoder's states are first."""
        n, k = input_ids.shape[1], decoder_input_ids.shape[1]
        memory, first, _ = self.run(self.encoder, self.dropout(self.embed(input_ids)), states, mask=self.encoder_bias(n, n),
                                    key_mask=padded(attention_mask))
        memory = self.dropout(memory)
        y, later, _ = self.run(self.decoder, self.dropout(self.embed(decoder_input_ids)), states, context=memory, context_mask=padded(attention_mask),
                               mask=self.decoder_bias(k, k), key_mask=padded(decoder_attention_mask))
        y = self.dropout(y)
        c: Any = self.config
        return Output(None if self.head is None else self.head(y * c.dim ** -0.5 if c.scaled else y), y, first + later)

    @classmethod
    def read(cls, f: Fields) -> T5Config:
        f.skip("n_positions", "classifier_dropout", "dense_act_fn", "is_gated_act", "output_past")
        f.same("feed_forward_proj", *PROJECTIONS)
        f.same("is_decoder", False)
        tied = f.take("tie_word_embeddings", True)
        return T5Config(
            dim=f.take("d_model"), blocks=f.take("num_layers"), decoder_blocks=f.take("num_decoder_layers", f.take("num_layers")),
            heads=f.take("num_heads"),
            vocab=f.take("vocab_size"), hidden=f.take("d_ff"), head_dim=f.take("d_kv"), kind=PROJECTIONS[f.take("feed_forward_proj", "relu")],
            buckets=f.take("relative_attention_num_buckets", 32), farthest=f.take("relative_attention_max_distance", 128),
            eps=f.take("layer_norm_epsilon", 1e-6), dropout=f.take("dropout_rate", 0.1), scaled=f.take("scale_decoder_outputs", tied),
            head=f.architecture("T5ForConditionalGeneration", "T5Model", "T5WithLMHeadModel") != "T5Model")

    @classmethod
    def suited(cls, config: Any, names: frozenset[str]) -> T5Config:
        """Whether the head has a matrix of its own, its name says; the field tie_word_embeddings has also meant `scaled`."""
        made: T5Config = replace(config, tied="lm_head.weight" not in names)
        return made

    def written(self) -> dict[str, Any]:
        c: Any = self.config
        if c.kind not in PROJECTIONS.values():
            raise CheckpointError(f"t5: a feed-forward of kind {c.kind} has no name in a T5 configuration")
        return {"model_type": "t5", "architectures": ["T5ForConditionalGeneration" if c.head else "T5Model"], "d_model": c.dim,
                "num_layers": c.blocks,
                "num_decoder_layers": c.decoder_blocks, "num_heads": c.heads, "vocab_size": c.vocab, "d_ff": c.hidden, "d_kv": c.head_dim,
                "feed_forward_proj": next(k for k, v in PROJECTIONS.items() if v == c.kind), "relative_attention_num_buckets": c.buckets,
                "relative_attention_max_distance": c.farthest, "layer_norm_epsilon": c.eps, "dropout_rate": c.dropout,
                "tie_word_embeddings": c.scaled, "scale_decoder_outputs": c.scaled, "is_encoder_decoder": True}

    def rows(self) -> Iterator[Row]:
        c: Any = self.config
        yield from named("embed", "shared")
        for side, blocks, kinds in (("encoder", c.blocks, ("SelfAttention", "")),
                                    ("decoder", c.decoder_blocks, ("SelfAttention", "EncDecAttention", ""))):
            yield from named(f"{side}_bias.table", f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias")
            for k in range(blocks):
                for place, kind in enumerate(kinds):
                    ours, theirs = f"{side}.layers.{len(kinds) * k + place}", f"{side}.block.{k}.layer.{place}"
                    yield from named(f"{ours}.scheme.norm", f"{theirs}.layer_norm")
                    for name in ("query", "key", "value", "output") if kind else ():
                        yield from named(f"{ours}.branch.{name}", f"{theirs}.{kind}.{name[0]}")
                    if not kind:
                        gated = c.kind in ("geglu_tanh", "swiglu", "reglu")
                        yield from named(f"{ours}.branch.input", f"{theirs}.DenseReluDense.{'wi_1' if gated else 'wi'}")
                        yield from named(f"{ours}.branch.gate", f"{theirs}.DenseReluDense.wi_0") if gated else ()
                        yield from named(f"{ours}.branch.output", f"{theirs}.DenseReluDense.wo")
            yield from named(f"{side}.final_norm", f"{side}.final_layer_norm")
        if c.head:
            yield from named("head", "lm_head")
