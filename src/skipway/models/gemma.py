"""gemma: decoder with wide heads, gated by gelu (Gemma 1, 2 and 3; the text part of 3).

    1       h <- h + F(R(h))               R(v) = (1 + g) v / rms(v); F is causal attention, then W_d (gelu(W_g v) * W_u v), in turn
    2, 3    h <- h + R(F(R(h)))
    logits = E R(h), in 2 c tanh(E R(h) / c) with c = 30; h begins as sqrt(dim) E[ids]

Two sites a block, each around one sublayer; a final norm. Year 2024 (1 and 2), 2025 (3). Special: 2 and 3 norm a branch before and behind it; 2 caps
the scores by 50 tanh(s / 50) and lets every other block see a window only; 3 norms queries and keys in place of the caps, five of six blocks see a
window, and those turn their positions by a base of 10^4, the others by 10^6.
Source: Gemma Team, Gemma, 2024, arXiv 2403.08295; Gemma 2, 2024, arXiv 2408.00118; Gemma 3 Technical Report, 2025, arXiv 2503.19786.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from skipway.models._base import Config, Output, Row, named
from skipway.models._decoder import Decoder, DecoderConfig, attention_rows, gated_rows, layer_types, slides
from skipway.models._fields import Fields, rope_written
from skipway.models._parts import OffsetRMSNorm, ScaledEmbedding, initial_normal
from skipway.nn import Attention, FeedForward, Stack


@dataclass(frozen=True, kw_only=True)
class GemmaConfig(DecoderConfig):
    """Numbers of a Gemma."""

    generation: int = 3                 # 1, 2 or 3
    tied: bool = True
    score_width: float | None = None    # scores are divided by its root; None: the width of a head
    softcap: float | None = None        # of the scores
    final_softcap: float | None = None  # of the logits
    near: dict[str, Any] = field(default_factory=lambda: {"theta": 10000.0})     # of 3: the rotary positions of blocks with a window


def _size(generation: int, dim: int, blocks: int, heads: int, kv_heads: int, hidden: int, **other: Any) -> GemmaConfig:
    shared: dict[int, dict[str, Any]] = {
        1: {"vocab": 256000, "context": 8192},
        2: {"vocab": 256000, "context": 8192, "softcap": 50.0, "final_softcap": 30.0, "window": 4096, "slides": (True, False)},
        3: {"vocab": 262208, "context": 131072, "window": 1024, "slides": (True,) * 5 + (False,),
            "rotary": {"theta": 1e6, "scaling": {"kind": "linear", "factor": 8.0}}}}
    return GemmaConfig(**{"generation": generation, "dim": dim, "blocks": blocks, "heads": heads, "kv_heads": kv_heads, "hidden": hidden,
                          "head_dim": 256, "pad": 0, **shared[generation], **other})


_PLAIN = {"rotary": {"theta": 1e6}, "vocab": 262144, "context": 32768, "window": 512}
SIZES: dict[str, Config] = {
    "tiny": _size(3, 64, 2, 4, 2, 176, head_dim=16, vocab=256, context=256, window=8, slides=(True, False), rotary={"theta": 1e6}),
    "1-2b": _size(1, 2048, 18, 8, 1, 16384), "1-7b": _size(1, 3072, 28, 16, 16, 24576),
    "2-2b": _size(2, 2304, 26, 8, 4, 9216, score_width=256), "2-9b": _size(2, 3584, 42, 16, 8, 14336, score_width=256),
    "2-27b": _size(2, 4608, 46, 32, 16, 36864, head_dim=128, score_width=144),
    "3-270m": _size(3, 640, 18, 4, 1, 2048, score_width=256, **_PLAIN), "3-1b": _size(3, 1152, 26, 4, 1, 6912, score_width=256, **_PLAIN),
    "3-4b": _size(3, 2560, 34, 8, 4, 10240, score_width=256), "3-12b": _size(3, 3840, 48, 16, 8, 15360, score_width=256),
    "3-27b": _size(3, 5376, 62, 32, 16, 21504, head_dim=128, score_width=168),
}


class Gemma(Decoder):
    """Token ids (batch, tokens) to logits (batch, tokens, vocab)."""

    RULE = "sandwich"
    MODEL_TYPES = ("gemma", "gemma2", "gemma3_text")

    @classmethod
    def class_of(cls, model_type: str) -> str:
        return {"gemma": "Gemma", "gemma2": "Gemma2", "gemma3_text": "Gemma3"}[model_type]

    @classmethod
    def rule(cls, config: Any) -> str:
        return "pre_norm" if config.generation == 1 else cls.RULE

    def make(self, c: GemmaConfig, rule: dict[str, Any]) -> None:
        self.around(c)
        self.embed = ScaledEmbedding(c.vocab, c.dim, c.pad)
        norm = partial(OffsetRMSNorm, eps=c.eps)
        scale = None if c.score_width is None else c.score_width ** -0.5
        branches: list[nn.Module] = []
        for k in range(c.blocks):
            window = c.window_of(k)
            rotary = c.near if c.generation == 3 and window is not None else c.rotary
            branches.append(Attention(c.dim, c.heads, True, kv_heads=c.kv_heads, head_dim=c.head_dim, bias=c.attention_bias, rotary=rotary,
                                      scale=scale,
                                      qk_norm="head" if c.generation == 3 else None, norm=norm, window=window, softcap=c.softcap,
                                      dropout=c.attention_dropout))
            branches.append(FeedForward(c.dim, c.hidden, "geglu_tanh", bias=False))
        self.stack = Stack(branches, c.dim, norm=norm, **rule)
        initial_normal(self, 0.02)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None, *, states: bool = False) -> Output:
        """input_ids (batch, tokens); attention_mask (batch, tokens), 1 for a real token."""
        out = super().forward(input_ids, attention_mask, position_ids, states=states)
        cap = self.config.final_softcap                     # type: ignore[attr-defined]
        return out if cap is None or out.logits is None else out._replace(logits=cap * torch.tanh(out.logits / cap))

    @classmethod
    def read(cls, f: Fields) -> GemmaConfig:
        generation = {"gemma": 1, "gemma2": 2, "gemma3_text": 3}[f.data["model_type"]]
        f.same("hidden_act", "gelu", "gelu_pytorch_tanh")   # the first releases say gelu and mean its approximation
        f.same("hidden_activation", "gelu_pytorch_tanh")
        f.same("use_bidirectional_attention", False)
        more: dict[str, Any] = {"generation": generation, "attention_bias": f.take("attention_bias", False)}
        if generation > 1:
            more |= {"score_width": f.take("query_pre_attn_scalar", 256), "softcap": f.take("attn_logit_softcapping", None),
                     "final_softcap": f.take("final_logit_softcapping", None), "window": f.take("sliding_window", None)}
            pattern = f.take("sliding_window_pattern", f.take("_sliding_window_pattern", 2 if generation == 2 else 6))
            found = slides(f.take("layer_types", None), f.take("num_hidden_layers"))
            more["slides"] = found or (True,) * (pattern - 1) + (False,)
        if generation == 3:
            more |= {"rotary": f.rope(1e6, "full_attention"), "near": f.rope(1e4, "sliding_attention")}
            base = f.take("rope_local_base_freq", None)
            if base is not None or "sliding_attention" not in (f.data.get("rope_parameters") or {}):
                more["near"] = {"theta": float(base or 1e4)}
        return GemmaConfig(**cls.numbers(f, tied=True, **more))

    def written(self) -> dict[str, Any]:
        c: Any = self.config
        kind = {1: "gemma", 2: "gemma2", 3: "gemma3_text"}[c.generation]
        made = self.wrote(kind, attention_bias=c.attention_bias, head_dim=c.head_dim or c.dim // c.heads, hidden_act="gelu_pytorch_tanh")
        if c.generation == 1:
            return made
        made["hidden_activation"] = made.pop("hidden_act")
        made |= {"query_pre_attn_scalar": c.score_width or made["head_dim"], "attn_logit_softcapping": c.softcap,
                 "final_logit_softcapping": c.final_softcap,
                 "sliding_window": c.window, "layer_types": layer_types(c)}
        if c.generation == 3:
            made["rope_parameters"] = {"full_attention": rope_written(c.rotary), "sliding_attention": rope_written(c.near)}
        return made

    def rows(self) -> Iterator[Row]:
        c: Any = self.config
        yield from self.outer_rows()
        behind = self.rule(c) == "sandwich"
        for k in range(c.blocks):
            a, m, theirs = f"stack.layers.{2 * k}", f"stack.layers.{2 * k + 1}", f"layers.{k}"
            yield from named(f"{a}.scheme.norm", f"{theirs}.input_layernorm")
            yield from attention_rows(f"{a}.branch", f"{theirs}.self_attn", c.attention_bias)
            if c.generation == 3:
                yield from named(f"{a}.branch.query_norm", f"{theirs}.self_attn.q_norm")
                yield from named(f"{a}.branch.key_norm", f"{theirs}.self_attn.k_norm")
            if behind:                                      # a name that elsewhere is that of the norm before the feed-forward
                yield from named(f"{a}.scheme.out_norm", f"{theirs}.post_attention_layernorm")
                yield from named(f"{m}.scheme.out_norm", f"{theirs}.post_feedforward_layernorm")
            yield from named(f"{m}.scheme.norm", f"{theirs}.{'pre_feedforward' if behind else 'post_attention'}_layernorm")
            yield from gated_rows(f"{m}.branch", f"{theirs}.mlp")
