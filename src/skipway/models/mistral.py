"""mistral: a Llama whose tokens see a window of those before them.

    h <- h + W_o Attention(R(h))           R(v) = g v / rms(v); causal, rotary positions, grouped keys and values, at most `window` tokens back
    h <- h + W_d (silu(W_g R(h)) * W_u R(h))
    logits = W_v R(h)

Two sites a block, each around one sublayer; a final norm. Year 2023. No biases. Special: a token of block k sees k windows back, so the window makes
the attention linear in the context and not the sight; from 7B v0.2 on there is no window.
Source: Jiang et al., Mistral 7B, 2023, arXiv 2310.06825.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import nn

from skipway.models._base import Config, Row, named
from skipway.models._decoder import Decoder, DecoderConfig, attention_rows, gated_rows
from skipway.models._fields import Fields
from skipway.models._parts import RMSNorm, initial_normal
from skipway.nn import Attention, FeedForward, Stack


class MistralConfig(DecoderConfig):
    """Numbers of a Mistral."""


def _size(dim: int, blocks: int, heads: int, hidden: int, vocab: int, **other: Any) -> MistralConfig:
    theta = other.pop("theta", 10000.0)
    return MistralConfig(**{"dim": dim, "blocks": blocks, "heads": heads, "kv_heads": 8, "hidden": hidden, "vocab": vocab, "context": 32768,
                            "eps": 1e-5,
                            "head_dim": 128, "rotary": {"theta": theta}, **other})


SIZES: dict[str, Config] = {
    "tiny": _size(64, 2, 4, 176, 256, kv_heads=2, head_dim=16, context=256, window=8),
    "7b-v0.1": _size(4096, 32, 32, 14336, 32000, window=4096), "7b-v0.2": _size(4096, 32, 32, 14336, 32000, theta=1e6),
    "7b-v0.3": _size(4096, 32, 32, 14336, 32768, theta=1e6),
    "nemo-12b": _size(5120, 40, 32, 14336, 131072, theta=1e6, context=131072),
    "small-22b": _size(6144, 56, 48, 16384, 32768, theta=1e6), "small-24b": _size(5120, 40, 32, 32768, 131072, theta=1e8),
    "large-123b": _size(12288, 88, 96, 28672, 32768, theta=1e6, context=131072),
}


class Mistral(Decoder):
    """Token ids (batch, tokens) to logits (batch, tokens, vocab)."""

    RULE = "pre_norm"
    MODEL_TYPES = ("mistral",)
    LM = "Mistral"

    def make(self, c: MistralConfig, rule: dict[str, Any]) -> None:
        self.around(c)
        branches: list[nn.Module] = []
        for _ in range(c.blocks):
            branches.append(Attention(c.dim, c.heads, True, kv_heads=c.kv_heads, head_dim=c.head_dim, bias=False, rotary=c.rotary, window=c.window,
                                      dropout=c.attention_dropout))
            branches.append(FeedForward(c.dim, c.hidden, "swiglu", bias=False))
        self.stack = Stack(branches, c.dim, norm=partial(RMSNorm, eps=c.eps), **rule)
        initial_normal(self, 0.02)

    @classmethod
    def read(cls, f: Fields) -> MistralConfig:
        f.same("hidden_act", "silu")
        return MistralConfig(**cls.numbers(f, window=f.take("sliding_window", None)))

    def written(self) -> dict[str, Any]:
        c: Any = self.config
        return self.wrote("mistral", sliding_window=c.window)

    def rows(self) -> Iterator[Row]:
        c: Any = self.config
        yield from self.outer_rows()
        for k in range(c.blocks):
            a, m, theirs = f"stack.layers.{2 * k}", f"stack.layers.{2 * k + 1}", f"layers.{k}"
            yield from named(f"{a}.scheme.norm", f"{theirs}.input_layernorm")
            yield from attention_rows(f"{a}.branch", f"{theirs}.self_attn")
            yield from named(f"{m}.scheme.norm", f"{theirs}.post_attention_layernorm")
            yield from gated_rows(f"{m}.branch", f"{theirs}.mlp")
