"""deepseek: decoder with latent attention and many small experts (DeepSeek V2 and V3).

    h <- h + LatentAttention(R(h))         R(v) = g v / rms(v); causal; keys and values come of one vector of 512 a token, part of a head is turned
    h <- h + S(R(h)) + sum of 6 or 8 experts E_e(R(h)), weighted; S is the shared expert, and the first blocks have one wide feed-forward instead
    logits = W_v R(h)

Two sites a block, each around one sublayer; a final norm. Year 2024 (both). Special: experts stand in groups, and only those of the best groups are
chosen from; 3 weighs them by sigmoid, normalised, and chooses by that plus a correction that is moved by hand and not by the gradient, so that no
loss has to balance them; 2 takes the softmax as it is. V4 is deepseek_v4. V3's modules for further tokens are not read; dequantise its
weights first: transformers' from_pretrained(dtype="bfloat16"), then save_pretrained.
Source: DeepSeek-AI, DeepSeek-V2, 2024, arXiv 2405.04434; DeepSeek-V3 Technical Report, 2024, arXiv 2412.19437.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from skipway.models._base import Config, Row, fused, named
from skipway.models._decoder import Decoder, DecoderConfig, expert_rows, gated_rows
from skipway.models._fields import Fields
from skipway.models._parts import RMSNorm, initial_normal
from skipway.nn import FeedForward, LatentAttention, MoE, Stack
from skipway.nn.rotary import stretch


@dataclass(frozen=True, kw_only=True)
class DeepSeekConfig(DecoderConfig):
    """Numbers of a DeepSeek."""

    generation: int = 3                 # 2 or 3
    latent: int = 512                   # width of what keys and values come of
    query_latent: int | None = 1536     # width of what queries come of; None: of the stream itself
    plain: int = 128                    # parts of a head that are left alone and turned, and the width of its values
    turned: int = 64
    value: int = 128
    interleaved: bool = True            # which channels of the turned part go together
    experts: int = 256
    expert_hidden: int = 2048
    top_k: int = 8
    shared: int = 1                     # experts that every token takes
    dense: int = 3                      # so many blocks at the start have none
    groups: int = 1
    top_groups: int = 1
    normalise: bool = True              # the weights of a token's experts sum to `weight`
    weight: float = 2.5


def _size(dim: int, blocks: int, heads: int, hidden: int, **other: Any) -> DeepSeekConfig:
    return DeepSeekConfig(**{"dim": dim, "blocks": blocks, "heads": heads, "kv_heads": heads, "hidden": hidden, "context": 163840, "vocab": 129280,
                             **other})


def _yarn(mscale: float) -> dict[str, Any]:
    return {"theta": 10000.0, "scaling": {"kind": "yarn", "factor": 40.0, "original": 4096, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": mscale,
                                          "mscale_all": mscale}}


_2: dict[str, Any] = {"generation": 2, "vocab": 102400, "top_k": 6, "shared": 2, "dense": 1, "normalise": False, "rotary": _yarn(0.707)}
SIZES: dict[str, Config] = {
    "tiny": _size(64, 2, 4, 176, vocab=256, context=256, latent=32, query_latent=48, plain=16, turned=8, value=16, experts=8, expert_hidden=32,
                  top_k=2, dense=1, groups=2, top_groups=1),
    "2-lite": _size(2048, 27, 16, 10944, query_latent=None, experts=64, expert_hidden=1408, weight=1.0, **_2),
    "2": _size(5120, 60, 128, 12288, experts=160, expert_hidden=1536, weight=16.0, groups=8, top_groups=3, **_2),
    "3": _size(7168, 61, 128, 18432, groups=8, top_groups=4, rotary=_yarn(1.0)),
}


class DeepSeek(Decoder):
    """Token ids (batch, tokens) to logits (batch, tokens, vocab)."""

    RULE = "pre_norm"
    MODEL_TYPES = ("deepseek_v2", "deepseek_v3")

    @classmethod
    def class_of(cls, model_type: str) -> str:
        return {"deepseek_v2": "DeepseekV2", "deepseek_v3": "DeepseekV3"}[model_type]

    @classmethod
    def ignores(cls, name: str, config: Any) -> bool:
        block = re.match(r"(?:model\.)?layers\.(\d+)\.", name)          # modules for further tokens stand behind the last block
        return super().ignores(name, config) or (block is not None and int(block[1]) >= config.blocks)

    def make(self, c: DeepSeekConfig, rule: dict[str, Any]) -> None:
        self.around(c)
        told = dict(c.rotary.get("scaling", {}))
        more = stretch(told["factor"], told["mscale_all"]) ** 2 if told.get("mscale_all") else 1.0
        branches: list[nn.Module] = []
        for k in range(c.blocks):
            branches.append(LatentAttention(
                c.dim, c.heads, c.latent, query_latent=c.query_latent, plain=c.plain, turned=c.turned, value=c.value, bias=c.attention_bias,
                rotary={**c.rotary, "interleaved": c.interleaved}, norm=partial(RMSNorm, eps=1e-6), scale=(c.plain + c.turned) ** -0.5 * more,
                dropout=c.attention_dropout))
            if k < c.dense:
                branches.append(FeedForward(c.dim, c.hidden, "swiglu", bias=False))
            else:
                kind: dict[str, Any] = {"scores": "sigmoid", "correction": True} if c.generation == 3 else {"group_best": 1}
                branches.append(MoE(c.dim, c.expert_hidden, c.experts, c.top_k, shared=c.shared * c.expert_hidden, normalise=c.normalise,
                                    scale=c.weight, groups=c.groups, top_groups=c.top_groups, router_dtype=torch.float32, **kind))
        self.stack = Stack(branches, c.dim, norm=partial(RMSNorm, eps=c.eps), **rule)
        initial_normal(self, 0.02)

    @classmethod
    def read(cls, f: Fields) -> DeepSeekConfig:
        f.same("hidden_act", "silu")
        f.same("mlp_bias", False)
        f.same("moe_layer_freq", 1)
        f.skip("head_dim", "qk_head_dim", "num_nextn_predict_layers", "num_mtp_layers", "ep_size", "aux_loss_alpha", "seq_aux",
               "output_router_logits", "num_experts", "num_local_experts")
        two = f.data["model_type"] == "deepseek_v2"
        method = f.take("topk_method", "greedy" if two else "noaux_tc")
        f.same("topk_method", *(("greedy", "group_limited_greedy") if two else ("noaux_tc",)))
        f.same("scoring_func", "softmax" if two else "sigmoid")
        if two:
            f.same("norm_topk_prob", False)
        groups, top = f.take("n_group", 1), f.take("topk_group", 1)
        if method == "greedy":
            groups, top = 1, 1
        numbers = cls.numbers(f, attention_bias=f.take("attention_bias", False))
        return DeepSeekConfig(**{
            **numbers, "generation": 2 if two else 3, "head_dim": None, "latent": f.take("kv_lora_rank"), "query_latent": f.take("q_lora_rank", None),
            "plain": f.take("qk_nope_head_dim"), "turned": f.take("qk_rope_head_dim"), "value": f.take("v_head_dim"),
            "interleaved": f.take("rope_interleave", True), "experts": f.take("n_routed_experts"), "shared": f.take("n_shared_experts"),
            "expert_hidden": f.take("moe_intermediate_size"), "top_k": f.take("num_experts_per_tok"), "dense": f.take("first_k_dense_replace", 0),
            "groups": groups, "top_groups": top, "normalise": f.take("norm_topk_prob", not two),
            "weight": f.take("routed_scaling_factor", 1.0)})

    def written(self) -> dict[str, Any]:
        c: Any = self.config
        made = self.wrote(f"deepseek_v{c.generation}", attention_bias=c.attention_bias, kv_lora_rank=c.latent, q_lora_rank=c.query_latent,
                          qk_nope_head_dim=c.plain, qk_rope_head_dim=c.turned, v_head_dim=c.value, n_routed_experts=c.experts,
                          n_shared_experts=c.shared,
                          moe_intermediate_size=c.expert_hidden, num_experts_per_tok=c.top_k, first_k_dense_replace=c.dense, n_group=c.groups,
                          topk_group=c.top_groups, norm_topk_prob=c.normalise, routed_scaling_factor=c.weight)
        if c.generation == 3:
            return made | {"rope_interleave": c.interleaved}
        return made | {"topk_method": "greedy" if c.groups == 1 else "group_limited_greedy"}

    def rows(self) -> Iterator[Row]:
        c: Any = self.config
        yield from self.outer_rows()
        for k in range(c.blocks):
            a, m, theirs = f"stack.layers.{2 * k}", f"stack.layers.{2 * k + 1}", f"layers.{k}"
            own, other = f"{a}.branch", f"{theirs}.self_attn"
            yield from named(f"{a}.scheme.norm", f"{theirs}.input_layernorm")
            yield from named(f"{own}.query", f"{other}.q_proj" if c.query_latent is None else f"{other}.q_b_proj")
            if c.query_latent is not None:
                yield from named(f"{own}.query_down", f"{other}.q_a_proj", c.attention_bias)
                yield from named(f"{own}.query_norm", f"{other}.q_a_layernorm")
            yield from fused((f"{own}.latent", f"{own}.turned"), f"{other}.kv_a_proj_with_mqa", c.attention_bias)
            yield from named(f"{own}.latent_norm", f"{other}.kv_a_layernorm")
            yield Row((f"{own}.key.weight", f"{own}.value.weight"), f"{other}.kv_b_proj.weight", "rows", c.heads)
            yield from named(f"{own}.output", f"{other}.o_proj", c.attention_bias)
            yield from named(f"{m}.scheme.norm", f"{theirs}.post_attention_layernorm")
            if k < c.dense:
                yield from gated_rows(f"{m}.branch", f"{theirs}.mlp")
                continue
            yield from expert_rows(f"{m}.branch", f"{theirs}.mlp", c.experts)
            yield from gated_rows(f"{m}.branch.shared", f"{theirs}.mlp.shared_experts")
            if c.generation == 3:
                yield Row(f"{m}.branch.correction", f"{theirs}.mlp.gate.e_score_correction_bias")
