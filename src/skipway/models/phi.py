"""phi: decoders of few words trained on textbooks (Phi 1, 1.5 and 2 with parallel branches; Phi 3, 3.5 and 4 as a Llama).

    1, 2    h <- h + W_o Attention(N(h)) + W_2 gelu(W_1 N(h))          N = LayerNorm, one for both; biases everywhere, also in the head
    3, 4    h <- h + W_o Attention(R(h)),  h <- h + W_d (silu(W_g R(h)) * W_u R(h))          R(v) = g v / rms(v); no biases
    logits = W N(h) + b, or W R(h)

1 and 2: one site a block, on which both sublayers stand in parallel; 3 and 4: two sites a block. A final norm. Year 2023 (1, 1.5, 2), 2024 (3, 4).
Special: 1 and 2 turn a part of each head by its position, and its shared norm means one pass over the stream a block; checkpoints of 3 keep query,
key and value in one matrix, and gate and input in another. The long-context variants stretch their positions in a way that is not here.
Source: Gunasekar et al., Textbooks Are All You Need, 2023, arXiv 2306.11644; Li et al., 2023, arXiv 2309.05463; Abdin et al., Phi-3, 2024, arXiv
2404.14219.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from skipway.models._base import Config, Output, Row, fused, named
from skipway.models._decoder import Decoder, DecoderConfig, attention_rows
from skipway.models._fields import ACTIVATION_WRITTEN, Fields
from skipway.models._parts import RMSNorm, causal, initial_normal
from skipway.nn import Attention, FeedForward, Parallel, Stack


@dataclass(frozen=True, kw_only=True)
class PhiConfig(DecoderConfig):
    """Numbers of a Phi."""

    generation: int = 3                 # 1 (also 1.5 and 2) or 3 (also 4)
    activation: str = "gelu_tanh"       # of generation 1
    qk_norm: bool = False               # of generation 1
    dropout: float = 0.0                # of what each branch adds
    embedding_dropout: float = 0.0      # of generation 1


def _early(dim: int, blocks: int, partial: float, **other: Any) -> PhiConfig:
    return PhiConfig(**{"generation": 1, "dim": dim, "blocks": blocks, "heads": 32, "kv_heads": 32, "hidden": 4 * dim, "vocab": 51200,
                        "context": 2048,
                        "eps": 1e-5, "rotary": {"theta": 10000.0, "partial": partial}, **other})


def _late(dim: int, blocks: int, heads: int, kv_heads: int, hidden: int, **other: Any) -> PhiConfig:
    return PhiConfig(**{"dim": dim, "blocks": blocks, "heads": heads, "kv_heads": kv_heads, "hidden": hidden, "vocab": 32064, "context": 4096,
                        "eps": 1e-5,
                        **other})


SIZES: dict[str, Config] = {
    "tiny": _early(64, 2, 0.5, heads=4, kv_heads=4, vocab=256, context=256),
    "1": _early(2048, 24, 0.5), "1.5": _early(2048, 24, 0.5), "2": _early(2560, 32, 0.4, dropout=0.1),
    "3-mini": _late(3072, 32, 32, 32, 8192, window=2047, pad=32000), "3-medium": _late(5120, 40, 40, 10, 17920, window=2047, pad=32000),
    "4": _late(5120, 40, 40, 10, 17920, vocab=100352, context=16384, rotary={"theta": 250000.0}),
}


class Phi(Decoder):
    """Token ids (batch, tokens) to logits (batch, tokens, vocab)."""

    RULE = "pre_norm"
    MODEL_TYPES = ("phi", "phi3")

    @classmethod
    def class_of(cls, model_type: str) -> str:
        return {"phi": "Phi", "phi3": "Phi3"}[model_type]

    def make(self, c: PhiConfig, rule: dict[str, Any]) -> None:
        early = c.generation == 1
        self.around(c, bias=early)
        self.dropout = nn.Dropout(c.embedding_dropout)
        norm: Any = partial(nn.LayerNorm if early else RMSNorm, eps=c.eps)
        branches: list[nn.Module] = []
        for _ in range(c.blocks):
            attention = Attention(c.dim, c.heads, True, kv_heads=c.kv_heads, head_dim=c.head_dim, bias=early, rotary=c.rotary, window=c.window,
                                  qk_norm="head" if c.qk_norm else None, norm=norm, dropout=c.attention_dropout)
            feed = FeedForward(c.dim, c.hidden, c.activation if early else "swiglu", bias=early)
            branches += [Parallel([attention, feed], dropout=c.dropout)] if early else [attention, feed]
        self.stack = Stack(branches, c.dim, norm=norm, dropout=0.0 if early else c.dropout, per_block=1 if early else 2, **rule)
        initial_normal(self, 0.02)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None, *, states: bool = False) -> Output:
        """input_ids (batch, tokens); attention_mask (batch, tokens), 1 for a real token."""
        y, seen, extras = self.run(self.stack, self.dropout(self.embed(input_ids)), states, **causal(attention_mask, position_ids))
        return Output(None if self.head is None else self.head(y), y, seen, extras)

    @classmethod
    def read(cls, f: Fields) -> PhiConfig:
        shared: dict[str, Any] = {"dropout": f.take("resid_pdrop", 0.0)}
        if f.data["model_type"] == "phi":
            rotary = f.rope()
            shared |= {"eps": f.take("layer_norm_eps", 1e-5), "rotary": rotary if "partial" in rotary else {**rotary, "partial": cls._part(f)},
                       "embedding_dropout": f.take("embd_pdrop", 0.0)}
            return PhiConfig(**cls.numbers(f, generation=1, activation=f.activation("hidden_act", "gelu_new"), qk_norm=f.take("qk_layernorm", False),
                                           **shared))
        f.same("hidden_act", "silu")
        f.same("attention_bias", False)
        f.skip("embd_pdrop", "original_max_position_embeddings")            # nothing in the model reads the first; the second is of other positions
        return PhiConfig(**cls.numbers(f, window=f.take("sliding_window", None), eps=1e-5, **shared))

    @staticmethod
    def _part(f: Fields) -> float:
        """The part of a head that is turned, where rope_parameters do not say less than all."""
        told = (f.data.get("rope_parameters") or {}).get("partial_rotary_factor", f.data.get("partial_rotary_factor"))
        return 0.5 if told is None else float(told)

    def written(self) -> dict[str, Any]:
        c: Any = self.config
        if c.generation == 3:
            made = self.wrote("phi3", sliding_window=c.window, resid_pdrop=c.dropout)
        else:
            made = self.wrote("phi", layer_norm_eps=c.eps, hidden_act=ACTIVATION_WRITTEN[c.activation], qk_layernorm=c.qk_norm, resid_pdrop=c.dropout,
                              embd_pdrop=c.embedding_dropout)
            del made["rms_norm_eps"]
        made["rope_parameters"].setdefault("partial_rotary_factor", 1.0)
        return made

    def rows(self) -> Iterator[Row]:
        c: Any = self.config
        if c.generation == 1:
            yield from self.outer_rows("final_layernorm", True)
            for k in range(c.blocks):
                ours, theirs = f"stack.layers.{k}", f"layers.{k}"
                yield from named(f"{ours}.scheme.norm", f"{theirs}.input_layernorm", True)
                yield from attention_rows(f"{ours}.branch.branches.0", f"{theirs}.self_attn", True, output="dense")
                if c.qk_norm:
                    yield from named(f"{ours}.branch.branches.0.query_norm", f"{theirs}.self_attn.q_layernorm", True)
                    yield from named(f"{ours}.branch.branches.0.key_norm", f"{theirs}.self_attn.k_layernorm", True)
                yield from named(f"{ours}.branch.branches.1.input", f"{theirs}.mlp.fc1", True)
                yield from named(f"{ours}.branch.branches.1.output", f"{theirs}.mlp.fc2", True)
            return
        yield from self.outer_rows()
        for k in range(c.blocks):
            a, m, theirs = f"stack.layers.{2 * k}", f"stack.layers.{2 * k + 1}", f"layers.{k}"
            yield from named(f"{a}.scheme.norm", f"{theirs}.input_layernorm")
            yield from named(f"{m}.scheme.norm", f"{theirs}.post_attention_layernorm")
            yield from fused((f"{a}.branch.query", f"{a}.branch.key", f"{a}.branch.value"), f"{theirs}.self_attn.qkv_proj")
            yield from named(f"{a}.branch.output", f"{theirs}.self_attn.o_proj")
            yield from fused((f"{m}.branch.gate", f"{m}.branch.input"), f"{theirs}.mlp.gate_up_proj")
            yield from named(f"{m}.branch.output", f"{theirs}.mlp.down_proj")
