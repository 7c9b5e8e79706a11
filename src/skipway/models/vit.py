"""vit: an encoder whose tokens are the patches of an image.

    h <- h + W_o Attention(N(h))           N = LayerNorm; every patch sees every other
    h <- h + W_2 gelu(W_1 N(h))
    logits = W N(h)_0                      of the learned token that stands in front of the patches

Two sites a block, each around one sublayer; a final norm. Year 2020 (small and tiny: 2021). Special: a patch becomes a token by one matrix, positions
are learned, and nothing else knows that it is an image; the stream keeps one width and one grid from stem to head.
Source: Dosovitskiy et al., An Image is Worth 16x16 Words, 2020, arXiv 2010.11929; small and tiny: Touvron et al., DeiT, 2021, arXiv 2012.12877.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import CheckpointError
from skipway.models._base import Config, Model, Output, Row, named
from skipway.models._fields import ACTIVATION_WRITTEN, Fields, classes, classes_written
from skipway.models._parts import initial_normal
from skipway.nn import VisionTransformer


@dataclass(frozen=True, kw_only=True)
class ViTConfig(Config):
    """Numbers of a vision transformer."""

    hidden: int
    image: int = 224
    patch: int = 16
    channels: int = 3
    classes: int = 1000
    activation: str = "gelu"
    eps: float = 1e-6
    bias: bool = True                   # of query, key and value
    pooler: int = 0                     # width of tanh(W h_0 + b), where the checkpoint has no head; 0: none
    dropout: float = 0.0
    attention_dropout: float = 0.0


def _size(dim: int, blocks: int, heads: int, patch: int, **other: Any) -> ViTConfig:
    return ViTConfig(dim=dim, blocks=blocks, heads=heads, hidden=4 * dim, patch=patch, **other)


SIZES: dict[str, Config] = {
    "tiny": _size(64, 2, 4, 8, image=32, classes=10),
    "ti-16": _size(192, 12, 3, 16), "s-16": _size(384, 12, 6, 16), "s-32": _size(384, 12, 6, 32), "b-16": _size(768, 12, 12, 16),
    "b-32": _size(768, 12, 12, 32), "l-16": _size(1024, 24, 16, 16), "l-32": _size(1024, 24, 16, 32), "h-14": _size(1280, 32, 16, 14),
}


class ViT(Model):
    """Images (batch, channels, image, image) to logits (batch, classes)."""

    RULE = "pre_norm"
    MODEL_TYPES = ("vit",)
    PREFIX = "vit."

    def make(self, c: ViTConfig, rule: dict[str, Any]) -> None:
        self.body = VisionTransformer(
            c.dim, c.heads, c.blocks, c.hidden, image=c.image, patch=c.patch, channels=c.channels, classes=0, kind=c.activation,
            dropout=c.dropout, norm=partial(nn.LayerNorm, eps=c.eps), feed_forward={"dropout": 0.0},
            attention={"bias": c.bias, "out_bias": True, "dropout": c.attention_dropout}, **rule)
        self.head = nn.Linear(c.dim, c.classes) if c.head else None
        self.pooler = nn.Linear(c.dim, c.pooler) if c.pooler else None
        initial_normal(self, 0.02)

    def forward(self, pixel_values: Tensor, *, states: bool = False) -> Output:
        """pixel_values (batch, channels, image, image). hidden (batch, 1 + patches, dim); extras: the pooled first token, where there is a pooler."""
        with self.watching(states) as seen:
            y = self.body.tokens(pixel_values)
        pooled = () if self.pooler is None else (torch.tanh(self.pooler(y[:, 0])),)
        return Output(None if self.head is None else self.head(y[:, 0]), y, tuple(seen), pooled)

    @classmethod
    def read(cls, f: Fields) -> ViTConfig:
        f.same("pooler_act", "tanh")
        f.skip("encoder_stride")
        return ViTConfig(
            dim=f.take("hidden_size"), blocks=f.take("num_hidden_layers"), heads=f.take("num_attention_heads"), hidden=f.take("intermediate_size"),
            image=_side(f, "image_size", 224), patch=_side(f, "patch_size", 16), channels=f.take("num_channels", 3), classes=classes(f),
            activation=f.activation("hidden_act", "gelu"), eps=f.take("layer_norm_eps", 1e-12), bias=f.take("qkv_bias", True),
            pooler=f.take("pooler_output_size", f.take("hidden_size")), dropout=f.take("hidden_dropout_prob", 0.0),
            attention_dropout=f.take("attention_probs_dropout_prob", 0.0),
            head=f.architecture("ViTForImageClassification", "ViTModel") == "ViTForImageClassification")

    @classmethod
    def suited(cls, config: Any, names: frozenset[str]) -> ViTConfig:
        """A folder has a pooler or has not; no field says so."""
        made: ViTConfig = config if any("pooler." in n for n in names) else replace(config, pooler=0)
        return made

    def written(self) -> dict[str, Any]:
        c: Any = self.config
        return {"model_type": "vit", "architectures": ["ViTForImageClassification" if c.head else "ViTModel"], "hidden_size": c.dim,
                "num_hidden_layers": c.blocks, "num_attention_heads": c.heads, "intermediate_size": c.hidden, "image_size": c.image,
                "patch_size": c.patch, "num_channels": c.channels, "hidden_act": ACTIVATION_WRITTEN[c.activation], "layer_norm_eps": c.eps,
                "qkv_bias": c.bias, "hidden_dropout_prob": c.dropout, "attention_probs_dropout_prob": c.attention_dropout,
                **({"pooler_output_size": c.pooler} if c.pooler else {}), **classes_written(c.classes)}

    def rows(self) -> Iterator[Row]:
        c: Any = self.config
        yield Row("body.front", "embeddings.cls_token", "led")
        yield Row("body.positions", "embeddings.position_embeddings", "led")
        yield from named("body.patches", "embeddings.patch_embeddings.projection", True)
        for k in range(c.blocks):
            a, m, theirs = f"body.encoder.layers.{2 * k}", f"body.encoder.layers.{2 * k + 1}", f"encoder.layer.{k}"
            yield from named(f"{a}.scheme.norm", f"{theirs}.layernorm_before", True)
            yield from named(f"{m}.scheme.norm", f"{theirs}.layernorm_after", True)
            for name in ("query", "key", "value"):
                yield from named(f"{a}.branch.{name}", f"{theirs}.attention.attention.{name}", c.bias)
            yield from named(f"{a}.branch.output", f"{theirs}.attention.output.dense", True)
            yield from named(f"{m}.branch.input", f"{theirs}.intermediate.dense", True)
            yield from named(f"{m}.branch.output", f"{theirs}.output.dense", True)
        yield from named("body.encoder.final_norm", "layernorm", True)
        if self.pooler is not None:
            yield from named("pooler", "pooler.dense", True)
        if c.head:
            yield from named("head", "/classifier", True)


def _side(f: Fields, name: str, default: int) -> int:
    told = f.take(name, default)
    sides = {told} if isinstance(told, int) else set(told)
    if len(sides) > 1:
        raise CheckpointError(f"{f.where}: {name} is {told!r}; only squares are supported")
    side: int = sides.pop()
    return side
