"""qwen: decoder of RMS-normed pre-norm blocks (Qwen 2 with biases, 3 with normed queries and keys, 3-MoE with experts; 2.5 is 2 with other numbers).

    h <- h + W_o Attention(R(h))           R(v) = g v / rms(v); causal, rotary positions, grouped keys and values
    h <- h + W_d (silu(W_g R(h)) * W_u R(h)), or of 128 such experts the sum of 8, weighted by the softmax of W R(h)
    logits = W_v R(h)

Two sites a block, each around one sublayer; a final norm. Year 2024 (2 and 2.5), 2025 (3). Special: 2 has biases on query, key and value alone; 3 has
none, and norms each head of queries and keys, which holds the scores in bounds. The experts' weights sum to 1 for each token.
Source: Yang et al., Qwen2 Technical Report, 2024, arXiv 2407.10671; Qwen2.5, 2024, arXiv 2412.15115; Qwen3 Technical Report, 2025, arXiv 2505.09388.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from skipway.models._base import Config, Row, named
from skipway.models._decoder import Decoder, DecoderConfig, attention_rows, expert_rows, gated_rows, layer_types, slides
from skipway.models._fields import Fields
from skipway.models._parts import RMSNorm, initial_normal
from skipway.nn import Attention, FeedForward, MoE, Stack


@dataclass(frozen=True, kw_only=True)
class QwenConfig(DecoderConfig):
    """Numbers of a Qwen."""

    generation: int = 3                 # 2 or 3
    experts: int = 0
    expert_hidden: int = 768
    top_k: int = 8
    normalise: bool = True              # the weights of a token's experts sum to 1
    dense: tuple[int, ...] = ()         # blocks without experts
    sparse_step: int = 1                # every so many blocks have them

    def sparse(self, block: int) -> bool:
        """Whether a block has experts."""
        return self.experts > 0 and block not in self.dense and (block + 1) % self.sparse_step == 0


def _size(dim: int, blocks: int, heads: int, kv_heads: int, hidden: int, **other: Any) -> QwenConfig:
    return QwenConfig(**{"dim": dim, "blocks": blocks, "heads": heads, "kv_heads": kv_heads, "hidden": hidden, "vocab": 151936, "context": 40960,
                         "head_dim": 128, "rotary": {"theta": 1e6}, **other})


_2 = {"generation": 2, "context": 131072, "head_dim": None}
_25 = {**_2, "context": 32768}
SIZES: dict[str, Config] = {
    "tiny": _size(64, 2, 4, 2, 176, head_dim=16, vocab=256, context=256),
    "2-0.5b": _size(896, 24, 14, 2, 4864, tied=True, **_2), "2-1.5b": _size(1536, 28, 12, 2, 8960, tied=True, **_2),
    "2-7b": _size(3584, 28, 28, 4, 18944, vocab=152064, **_2), "2-72b": _size(8192, 80, 64, 8, 29568, vocab=152064, eps=1e-5, **_2),
    "2.5-0.5b": _size(896, 24, 14, 2, 4864, tied=True, **_25), "2.5-1.5b": _size(1536, 28, 12, 2, 8960, tied=True, **_2),
    "2.5-3b": _size(2048, 36, 16, 2, 11008, tied=True, **_25), "2.5-7b": _size(3584, 28, 28, 4, 18944, vocab=152064, **_2),
    "2.5-14b": _size(5120, 48, 40, 8, 13824, vocab=152064, eps=1e-5, **_2), "2.5-32b": _size(5120, 64, 40, 8, 27648, vocab=152064, eps=1e-5, **_2),
    "2.5-72b": _size(8192, 80, 64, 8, 29568, vocab=152064, eps=1e-5, **_2),
    "3-0.6b": _size(1024, 28, 16, 8, 3072, tied=True), "3-1.7b": _size(2048, 28, 16, 8, 6144, tied=True),
    "3-4b": _size(2560, 36, 32, 8, 9728, tied=True),
    "3-8b": _size(4096, 36, 32, 8, 12288), "3-14b": _size(5120, 40, 40, 8, 17408), "3-32b": _size(5120, 64, 64, 8, 25600),
    "3-30b-a3b": _size(2048, 48, 32, 4, 6144, experts=128, expert_hidden=768),
    "3-235b-a22b": _size(4096, 94, 64, 4, 12288, experts=128, expert_hidden=1536),
}


class Qwen(Decoder):
    """Token ids (batch, tokens) to logits (batch, tokens, vocab)."""

    RULE = "pre_norm"
    MODEL_TYPES = ("qwen2", "qwen3", "qwen3_moe")

    @classmethod
    def class_of(cls, model_type: str) -> str:
        return {"qwen2": "Qwen2", "qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe"}[model_type]

    def make(self, c: QwenConfig, rule: dict[str, Any]) -> None:
        self.around(c)
        norm = partial(RMSNorm, eps=c.eps)
        branches: list[nn.Module] = []
        for k in range(c.blocks):
            branches.append(Attention(c.dim, c.heads, True, kv_heads=c.kv_heads, head_dim=c.head_dim, bias=self._biases(c)[0],
                                      out_bias=self._biases(c)[1],
                                      rotary=c.rotary, qk_norm="head" if c.generation == 3 else None, norm=norm, window=c.window_of(k),
                                      dropout=c.attention_dropout))
            if c.sparse(k):
                branches.append(MoE(c.dim, c.expert_hidden, c.experts, c.top_k, normalise=c.normalise, score_dtype=torch.float32))
            else:
                branches.append(FeedForward(c.dim, c.hidden, "swiglu", bias=False))
        self.stack = Stack(branches, c.dim, norm=norm, **rule)
        initial_normal(self, 0.02)

    @staticmethod
    def _biases(c: QwenConfig) -> tuple[bool, bool]:
        """Whether query, key and value have biases, and whether the output has."""
        return (True, False) if c.generation == 2 else (c.attention_bias, c.attention_bias)

    @classmethod
    def read(cls, f: Fields) -> QwenConfig:
        f.same("hidden_act", "silu")
        kind, window = f.data["model_type"], f.take("sliding_window", None)
        types, first = f.take("layer_types", None), f.take("max_window_layers", 28)
        numbers = cls.numbers(f, window=window if f.take("use_sliding_window", False) else None, generation=2 if kind == "qwen2" else 3)
        if kind != "qwen2":
            numbers["attention_bias"] = f.take("attention_bias", False)
        if kind != "qwen3_moe":
            if types is None and numbers["window"]:
                types = ["sliding_attention" if k >= first else "full_attention" for k in range(numbers["blocks"])]
            found = slides(types, numbers["blocks"])
            return QwenConfig(**numbers | ({"slides": found} if found and numbers["window"] else {}))
        f.skip("router_aux_loss_coef", "output_router_logits")
        experts = f.take("num_experts", None) or f.take("num_local_experts")
        f.skip("num_local_experts")
        return QwenConfig(**numbers, experts=experts, expert_hidden=f.take("moe_intermediate_size"), top_k=f.take("num_experts_per_tok"),
                          normalise=f.take("norm_topk_prob", False), dense=tuple(f.take("mlp_only_layers", ())),
                          sparse_step=f.take("decoder_sparse_step", 1))

    def written(self) -> dict[str, Any]:
        c: Any = self.config
        window: dict[str, Any] = {"sliding_window": c.window, "use_sliding_window": c.window is not None}
        if c.generation == 2:
            return self.wrote("qwen2", **window, layer_types=layer_types(c))
        window |= {"attention_bias": c.attention_bias, "head_dim": c.head_dim or c.dim // c.heads}
        if c.experts:
            return self.wrote("qwen3_moe", **window, num_experts=c.experts, moe_intermediate_size=c.expert_hidden,
                              num_experts_per_tok=c.top_k, norm_topk_prob=c.normalise, mlp_only_layers=list(c.dense),
                              decoder_sparse_step=c.sparse_step)
        return self.wrote("qwen3", **window, layer_types=layer_types(c))

    def rows(self) -> Iterator[Row]:
        c: Any = self.config
        yield from self.outer_rows()
        for k in range(c.blocks):
            a, m, theirs = f"stack.layers.{2 * k}", f"stack.layers.{2 * k + 1}", f"layers.{k}"
            yield from named(f"{a}.scheme.norm", f"{theirs}.input_layernorm")
            yield from attention_rows(f"{a}.branch", f"{theirs}.self_attn", *self._biases(c))
            if c.generation == 3:
                yield from named(f"{a}.branch.query_norm", f"{theirs}.self_attn.q_norm")
                yield from named(f"{a}.branch.key_norm", f"{theirs}.self_attn.k_norm")
            yield from named(f"{m}.scheme.norm", f"{theirs}.post_attention_layernorm")
            if c.sparse(k):
                yield from expert_rows(f"{m}.branch", f"{theirs}.mlp", c.experts)
            else:
                yield from gated_rows(f"{m}.branch", f"{theirs}.mlp")
