"""llama: decoder of RMS-normed pre-norm blocks (Llama 1 to 3; SmolLM2 is one, too).

    h <- h + W_o Attention(R(h))           R(v) = g v / rms(v); causal, rotary positions, grouped keys and values from Llama 2 70B on
    h <- h + W_d (silu(W_g R(h)) * W_u R(h))
    logits = W_v R(h)

Two sites a block, each around one sublayer; a final norm. Year 2023 (1 and 2), 2024 (3). No biases. Special: nothing, and that is its point; long
contexts of Llama 3.1 stretch the rotary waves.
Source: Touvron et al., LLaMA, 2023, arXiv 2302.13971; Llama 2, 2023, arXiv 2307.09288; Grattafiori et al., The Llama 3 Herd, 2024, arXiv 2407.21783.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor, nn

from skipway.models._base import Config, Model, Output, Row, named
from skipway.models._fields import Fields, rope_written
from skipway.models._parts import RMSNorm, causal, initial_normal
from skipway.nn import Attention, FeedForward, Stack


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(Config):
    """Numbers of a Llama."""

    vocab: int
    hidden: int
    kv_heads: int
    head_dim: int | None = None
    context: int = 2048
    rotary: dict[str, Any] = field(default_factory=lambda: {"theta": 10000.0})
    eps: float = 1e-5
    tied: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False


def _size(dim: int, blocks: int, heads: int, kv_heads: int, hidden: int, vocab: int = 32000, context: int = 4096, **other: Any) -> LlamaConfig:
    return LlamaConfig(dim=dim, blocks=blocks, heads=heads, kv_heads=kv_heads, hidden=hidden, vocab=vocab, context=context, **other)


_3: dict[str, Any] = {"vocab": 128256, "context": 8192, "rotary": {"theta": 500000.0}}
_WAVES: dict[str, Any] = {"kind": "llama3", "low": 1.0, "high": 4.0, "original": 8192}
_31: dict[str, Any] = {"vocab": 128256, "context": 131072, "rotary": {"theta": 500000.0, "scaling": {**_WAVES, "factor": 8.0}}}
_32: dict[str, Any] = {"vocab": 128256, "context": 131072, "rotary": {"theta": 500000.0, "scaling": {**_WAVES, "factor": 32.0}}, "tied": True}
SIZES = {
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


class Llama(Model):
    """Token ids (batch, tokens) to logits (batch, tokens, vocab)."""

    RULE = "pre_norm"
    MODEL_TYPES = ("llama",)
    PREFIX = "model."
    IGNORED = ("rotary_emb.inv_freq",)

    def make(self, c: LlamaConfig, rule: dict[str, Any]) -> None:
        norm = partial(RMSNorm, eps=c.eps)
        self.embed = nn.Embedding(c.vocab, c.dim)
        branches: list[nn.Module] = []
        for _ in range(c.blocks):
            branches.append(Attention(c.dim, c.heads, True, kv_heads=c.kv_heads, head_dim=c.head_dim, bias=c.attention_bias, rotary=c.rotary))
            branches.append(FeedForward(c.dim, c.hidden, "swiglu", bias=c.mlp_bias))
        self.stack = Stack(branches, c.dim, norm=norm, **rule)
        self.head = nn.Linear(c.dim, c.vocab, False) if c.head else None
        self.tied = (("embed.weight", "head.weight"),) if c.tied and c.head else ()
        initial_normal(self, 0.02)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None, *, states: bool = False) -> Output:
        """input_ids (batch, tokens); attention_mask (batch, tokens), 1 for a real token."""
        y, seen, extras = self.run(self.stack, self.embed(input_ids), states, **causal(attention_mask, position_ids))
        return Output(None if self.head is None else self.head(y), y, seen, extras)

    @classmethod
    def read(cls, f: Fields) -> LlamaConfig:
        f.same("hidden_act", "silu")
        f.skip("attention_dropout", "max_window_layers")
        heads = f.take("num_attention_heads")
        return LlamaConfig(
            dim=f.take("hidden_size"), blocks=f.take("num_hidden_layers"), heads=heads, kv_heads=f.take("num_key_value_heads", heads),
            hidden=f.take("intermediate_size"), vocab=f.take("vocab_size"), head_dim=f.take("head_dim", None),
            context=f.take("max_position_embeddings", 2048), rotary=f.rope(), eps=f.take("rms_norm_eps", 1e-6),
            tied=f.take("tie_word_embeddings", False), head=f.architecture("LlamaForCausalLM", "LlamaModel") == "LlamaForCausalLM",
            attention_bias=f.take("attention_bias", False), mlp_bias=f.take("mlp_bias", False))

    def written(self) -> dict[str, Any]:
        c: Any = self.config
        return {"model_type": "llama", "architectures": ["LlamaForCausalLM" if c.head else "LlamaModel"], "hidden_act": "silu", "hidden_size": c.dim,
                "num_hidden_layers": c.blocks, "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads, "intermediate_size": c.hidden,
                "vocab_size": c.vocab, "head_dim": c.head_dim or c.dim // c.heads, "max_position_embeddings": c.context,
                "rope_parameters": rope_written(c.rotary), "rms_norm_eps": c.eps, "tie_word_embeddings": c.tied, "attention_bias": c.attention_bias,
                "mlp_bias": c.mlp_bias}

    def rows(self) -> Iterator[Row]:
        c: Any = self.config
        yield from named("embed", "embed_tokens")
        for k in range(c.blocks):
            a, m, theirs = f"stack.layers.{2 * k}", f"stack.layers.{2 * k + 1}", f"layers.{k}"
            yield from named(f"{a}.scheme.norm", f"{theirs}.input_layernorm")
            yield from named(f"{m}.scheme.norm", f"{theirs}.post_attention_layernorm")
            for ours, name in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o")):
                yield from named(f"{a}.branch.{ours}", f"{theirs}.self_attn.{name}_proj", c.attention_bias)
            for ours, name in (("gate", "gate"), ("input", "up"), ("output", "down")):
                yield from named(f"{m}.branch.{ours}", f"{theirs}.mlp.{name}_proj", c.mlp_bias)
        yield from named("stack.final_norm", "norm")
        if c.head:
            yield from named("head", "/lm_head")
