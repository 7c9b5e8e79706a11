"""gpt_oss: the open decoder of the house of GPT, with experts in every block.

    h <- h + W_o Attention(R(h)) + b       R(v) = g v / rms(v); causal, rotary positions, grouped keys and values, a sink
    h <- h + sum of 4 of 32 or 128 experts E_e(R(h)), weighted by the softmax over those 4 of W R(h) + b
    E(x) = W_d (s(min(W_g x + b, 7)) * (clamp(W_u x + b, -7, 7) + 1)) + b          s(x) = x sigmoid(1.702 x)
    logits = W_v R(h)

Two sites a block, each around one sublayer; a final norm. Year 2025. Special: every other block sees a window of 128 tokens; a learned score a head,
the sink, takes part in the softmax and has no value, so that a head may look at nothing; yarn stretches 4096 positions to 131072. The published
weights of the experts are in four bits (MXFP4); dequantise them first: from_pretrained(..., dtype="bfloat16"), then save_pretrained.
Source: OpenAI, gpt-oss-120b & gpt-oss-20b Model Card, 2025, arXiv 2508.10925.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from skipway.models._base import Config, Row, named
from skipway.models._decoder import Decoder, DecoderConfig, attention_rows, layer_types, slides
from skipway.models._fields import Fields
from skipway.models._parts import RMSNorm, initial_normal
from skipway.nn import Attention, MoE, Stack

YARN = {"theta": 150000.0, "scaling": {"kind": "yarn", "factor": 32.0, "original": 4096, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}}


@dataclass(frozen=True, kw_only=True)
class GptOssConfig(DecoderConfig):
    """Numbers of a gpt-oss; `hidden` is the width of an expert."""

    experts: int = 32
    top_k: int = 4
    limit: float = 7.0                  # of what an expert's gate and input give


def _size(dim: int, blocks: int, heads: int, kv_heads: int, experts: int, **other: Any) -> GptOssConfig:
    return GptOssConfig(**{"dim": dim, "blocks": blocks, "heads": heads, "kv_heads": kv_heads, "experts": experts, "hidden": dim, "vocab": 201088,
                           "context": 131072, "head_dim": 64, "eps": 1e-5, "attention_bias": True, "window": 128, "slides": (True, False),
                           "rotary": YARN, "pad": 199999, **other})


SIZES: dict[str, Config] = {
    "tiny": _size(64, 2, 4, 2, 4, vocab=256, context=256, head_dim=16, window=8, top_k=2, pad=None, rotary={"theta": 150000.0}),
    "20b": _size(2880, 24, 64, 8, 32), "120b": _size(2880, 36, 64, 8, 128),
}


class GptOss(Decoder):
    """Token ids (batch, tokens) to logits (batch, tokens, vocab)."""

    RULE = "pre_norm"
    MODEL_TYPES = ("gpt_oss",)
    LM = "GptOss"

    def make(self, c: GptOssConfig, rule: dict[str, Any]) -> None:
        self.around(c)
        branches: list[nn.Module] = []
        for k in range(c.blocks):
            branches.append(Attention(c.dim, c.heads, True, kv_heads=c.kv_heads, head_dim=c.head_dim, bias=c.attention_bias, rotary=c.rotary,
                                      window=c.window_of(k), sinks=True, dropout=c.attention_dropout))
            branches.append(MoE(c.dim, c.hidden, c.experts, c.top_k, kind="geglu_quick", bias=True, router_bias=True, limit=c.limit, shift=1.0))
        self.stack = Stack(branches, c.dim, norm=partial(RMSNorm, eps=c.eps), **rule)
        initial_normal(self, 0.02)

    @classmethod
    def read(cls, f: Fields) -> GptOssConfig:
        f.same("hidden_act", "silu")                        # what it says; the experts' own function is written beside it
        f.same("swiglu_alpha", 1.702)
        f.skip("router_aux_loss_coef", "output_router_logits", "experts_per_token", "initial_context_length")
        experts = f.take("num_local_experts", None) or f.take("num_experts")
        f.skip("num_experts")
        return GptOssConfig(**cls.numbers(
            f, 150000.0, 1e-5, window=f.take("sliding_window", None), slides=slides(f.take("layer_types", None),
                                                                                    f.take("num_hidden_layers")) or (True, False),
            attention_bias=f.take("attention_bias", True), experts=experts, top_k=f.take("num_experts_per_tok", 4),
            limit=f.take("swiglu_limit", 7.0)))

    def written(self) -> dict[str, Any]:
        c: Any = self.config
        return self.wrote("gpt_oss", head_dim=c.head_dim or c.dim // c.heads, sliding_window=c.window, layer_types=layer_types(c),
                          attention_bias=c.attention_bias,
                          num_local_experts=c.experts, num_experts_per_tok=c.top_k, swiglu_limit=c.limit)

    def rows(self) -> Iterator[Row]:
        c: Any = self.config
        yield from self.outer_rows()
        for k in range(c.blocks):
            a, m, theirs = f"stack.layers.{2 * k}", f"stack.layers.{2 * k + 1}", f"layers.{k}"
            yield from named(f"{a}.scheme.norm", f"{theirs}.input_layernorm")
            yield from attention_rows(f"{a}.branch", f"{theirs}.self_attn", c.attention_bias)
            yield Row(f"{a}.branch.sink", f"{theirs}.self_attn.sinks")
            yield from named(f"{m}.scheme.norm", f"{theirs}.post_attention_layernorm")
            yield from named(f"{m}.branch.router", f"{theirs}.mlp.router", True)
            experts = f"{theirs}.mlp.experts"               # gate and input stand in turn, one output of each after the other
            yield Row((f"{m}.branch.gate", f"{m}.branch.input"), f"{experts}.gate_up_proj", "each rows turned", c.hidden)
            yield Row((f"{m}.branch.gate_bias", f"{m}.branch.input_bias"), f"{experts}.gate_up_proj_bias", "each rows", c.hidden)
            yield Row(f"{m}.branch.output", f"{experts}.down_proj", "each turned")
            yield Row(f"{m}.branch.output_bias", f"{experts}.down_proj_bias")
