"""llama: decoder of RMS-normed pre-norm blocks (Llama 1 to 3; SmolLM2 is one, too).

    h <- h + W_o Attention(R(h))           R(v) = g v / rms(v); causal, rotary positions, grouped keys and values from Llama 2 70B on
    h <- h + W_d (silu(W_g R(h)) * W_u R(h))
    logits = W_v R(h)

Two sites a block, each around one sublayer; a final norm. Year 2023 (1 and 2), 2024 (3). No biases. Special: nothing, and that is its point; long
contexts of Llama 3.1 stretch the rotary waves.
Source: Touvron et al., LLaMA, 2023, arXiv 2302.13971; Llama 2, 2023, arXiv 2307.09288; Grattafiori et al., The Llama 3 Herd, 2024, arXiv 2407.21783.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from skipway.models._base import Config, Row, named
from skipway.models._decoder import Decoder, DecoderConfig, attention_rows, gated_rows
from skipway.models._fields import Fields
from skipway.models._parts import RMSNorm, initial_normal
from skipway.nn import Attention, FeedForward, Stack


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(DecoderConfig):
    """Numbers of a Llama."""

    eps: float = 1e-5
    mlp_bias: bool = False


def _size(dim: int, blocks: int, heads: int, kv_heads: int, hidden: int, vocab: int = 32000, context: int = 4096, **other: Any) -> LlamaConfig:
    return LlamaConfig(dim=dim, blocks=blocks, heads=heads, kv_heads=kv_heads, hidden=hidden, vocab=vocab, context=context, **other)


_3: dict[str, Any] = {"vocab": 128256, "context": 8192, "rotary": {"theta": 500000.0}}
_WAVES: dict[str, Any] = {"kind": "llama3", "low": 1.0, "high": 4.0, "original": 8192}
_31: dict[str, Any] = {"vocab": 128256, "context": 131072, "rotary": {"theta": 500000.0, "scaling": {**_WAVES, "factor": 8.0}}}
_32: dict[str, Any] = {"vocab": 128256, "context": 131072, "rotary": {"theta": 500000.0, "scaling": {**_WAVES, "factor": 32.0}}, "tied": True}
SIZES: dict[str, Config] = {
    "tiny": _size(64, 2, 4, 2, 176, 256, 256),
    "1-7b": _size(4096, 32, 32, 32, 11008, context=2048, eps=1e-6), "1-13b": _size(5120, 40, 40, 40, 13824, context=2048, eps=1e-6),
    "1-33b": _size(6656, 60, 52, 52, 17920, context=2048, eps=1e-6), "1-65b": _size(8192, 80, 64, 64, 22016, context=2048, eps=1e-5),
    "2-7b": _size(4096, 32, 32, 32, 11008), "2-13b": _size(5120, 40, 40, 40, 13824), "2-70b": _size(8192, 80, 64, 8, 28672),
    "3-8b": _size(4096, 32, 32, 8, 14336, **_3), "3-70b": _size(8192, 80, 64, 8, 28672, **_3),
    "3.1-8b": _size(4096, 32, 32, 8, 14336, **_31), "3.1-70b": _size(8192, 80, 64, 8, 28672, **_31),
    "3.1-405b": _size(16384, 126, 128, 8, 53248, **_31),
    "3.2-1b": _size(2048, 16, 32, 8, 8192, **_32), "3.2-3b": _size(3072, 28, 24, 8, 8192, **_32),
    "smollm2-135m": _size(576, 30, 9, 3, 1536, 49152, 8192, rotary={"theta": 100000.0}, tied=True),
}


class Llama(Decoder):
    """Token ids (batch, tokens) to logits (batch, tokens, vocab)."""

    RULE = "pre_norm"
    MODEL_TYPES = ("llama",)
    LM = "Llama"

    def make(self, c: LlamaConfig, rule: dict[str, Any]) -> None:
        self.around(c)
        branches: list[nn.Module] = []
        for _ in range(c.blocks):
            branches.append(Attention(c.dim, c.heads, True, kv_heads=c.kv_heads, head_dim=c.head_dim, bias=c.attention_bias, rotary=c.rotary,
                                      dropout=c.attention_dropout))
            branches.append(FeedForward(c.dim, c.hidden, "swiglu", bias=c.mlp_bias))
        self.stack = Stack(branches, c.dim, norm=partial(RMSNorm, eps=c.eps), **rule)
        initial_normal(self, 0.02)

    @classmethod
    def read(cls, f: Fields) -> LlamaConfig:
        f.same("hidden_act", "silu")
        return LlamaConfig(**cls.numbers(f, attention_bias=f.take("attention_bias", False), mlp_bias=f.take("mlp_bias", False)))

    def written(self) -> dict[str, Any]:
        c: Any = self.config
        return self.wrote("llama", attention_bias=c.attention_bias, mlp_bias=c.mlp_bias)

    def rows(self) -> Iterator[Row]:
        c: Any = self.config
        yield from self.outer_rows()
        for k in range(c.blocks):
            a, m, theirs = f"stack.layers.{2 * k}", f"stack.layers.{2 * k + 1}", f"layers.{k}"
            yield from named(f"{a}.scheme.norm", f"{theirs}.input_layernorm")
            yield from attention_rows(f"{a}.branch", f"{theirs}.self_attn", c.attention_bias)
            yield from named(f"{m}.scheme.norm", f"{theirs}.post_attention_layernorm")
            yield from gated_rows(f"{m}.branch", f"{theirs}.mlp", c.mlp_bias)
