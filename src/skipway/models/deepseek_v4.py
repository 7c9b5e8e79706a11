"""deepseek_v4: decoder on four lanes that a doubly stochastic matrix mixes, with compressed attention and experts in every block.

    H <- M H + q A(R(p . H))               p, q, M made of the lanes for every token, M doubly stochastic; R(v) = g v / rms(v)
    H <- M H + q E(R(p . H))
    logits = W_v R(p . H)

A: one key, which is the value, too, for all heads, with sinks; every token sees a window of 128, and in most blocks summaries of what is past: of 4
tokens, of which 512 are chosen ("sparse"), or of 128 ("heavy"). E: 6 of 256 or 384 experts and a shared one, gate and input bounded by 10, weighted
by sqrt(softplus(W R(h))), normalised; the first blocks look the experts up by the token. Two sites a block, each around one sublayer; a final norm.
Year 2026. Special: the only published weights of this size on hyper-connections (scheme mhc). Modules for further tokens are not read; dequantise the
weights first: transformers' from_pretrained(dtype="bfloat16"), then save_pretrained.
Source: DeepSeek-AI, DeepSeek-V4, 2026, sections 2.1 to 2.3, and its configurations; mHC: Xie et al., 2025, arXiv 2512.24880.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from skipway.models._base import Config, Output, Row, named
from skipway.models._decoder import Decoder, DecoderConfig
from skipway.models._fields import Fields, rope_written
from skipway.models._parts import RMSNorm, causal, initial_normal
from skipway.nn import CompressedAttention, MoE, Stack

KINDS = {"window": "sliding_attention", "sparse": "compressed_sparse_attention", "heavy": "heavily_compressed_attention"}


@dataclass(frozen=True, kw_only=True)
class DeepSeekV4Config(DecoderConfig):
    """Numbers of a DeepSeek V4; `hidden` is the width of an expert, `rotary` the positions of blocks with a window alone."""

    query_latent: int = 1024
    turned: int = 64                    # the last channels of a head are turned
    groups: int = 8                     # of heads, at the output
    group_width: int = 1024
    kinds: tuple[str, ...] = ("window", "window", "sparse", *("heavy", "sparse") * 20)      # of a block's attention; the last two go on and on
    rates: tuple[int, int] = (4, 128)   # tokens a summary, sparse and heavy
    far: dict[str, Any]                 # rotary positions of blocks with summaries
    choice: tuple[int, int, int] = (64, 128, 512)           # heads, width and number of what is chosen, in sparse blocks
    experts: int = 256
    top_k: int = 6
    weight: float = 1.5
    limit: float = 10.0
    looked_up: int = 3                  # so many blocks at the start look their experts up
    lanes: int = 4
    iterations: int = 20
    floor: float = 1e-6

    def kind(self, block: int) -> str:
        """The kind of a block's attention."""
        n = len(self.kinds)
        return self.kinds[block if block < n else n - 2 + (block - n) % 2 if n > 1 else 0]


def _size(dim: int, blocks: int, heads: int, **other: Any) -> DeepSeekV4Config:
    yarn = {"kind": "yarn", "factor": 16.0, "original": 65536, "beta_fast": 32.0, "beta_slow": 1.0, "attention_factor": 1.0}
    return DeepSeekV4Config(**{"dim": dim, "blocks": blocks, "heads": heads, "kv_heads": 1, "head_dim": 512, "hidden": 2048, "vocab": 129280,
                               "context": 1048576, "window": 128, "rotary": {"theta": 10000.0}, "far": {"theta": 160000.0, "scaling": yarn}, **other})


SIZES: dict[str, Config] = {
    "tiny": _size(64, 3, 4, head_dim=16, hidden=32, vocab=256, context=256, window=8, query_latent=32, turned=8, groups=2, group_width=16,
                  kinds=("window", "sparse", "heavy"), rates=(2, 4), choice=(2, 16, 2), experts=8, top_k=2, looked_up=1, far={"theta": 160000.0}),
    "flash": _size(4096, 43, 64),
    "pro": _size(7168, 61, 128, hidden=3072, query_latent=1536, groups=16, experts=384, weight=2.5,
                 kinds=("heavy", "heavy", *("sparse", "heavy") * 29, "sparse")),
}


class DeepSeekV4(Decoder):
    """Token ids (batch, tokens) to logits (batch, tokens, vocab)."""

    RULE = "mhc"
    MODEL_TYPES = ("deepseek_v4",)
    LM = "DeepseekV4"

    @classmethod
    def ignores(cls, name: str, config: Any) -> bool:
        return super().ignores(name, config) or re.match(r"(?:model\.)?mtp\.", name) is not None

    @classmethod
    def spelled(cls, name: str, prefix: str) -> str:
        if prefix:                                          # transformers renames these only where nothing stands before them
            name = {"embed.weight": "embed_tokens.weight"}.get(name, name).replace("hc_head_", "hc_head.hc_")
        return super().spelled(name, prefix)

    def make(self, c: DeepSeekV4Config, rule: dict[str, Any]) -> None:
        if rule["scheme"] == "mhc":
            rule = {"convention": "transposed", "leave": "gated", "lanes": c.lanes, "iterations": c.iterations, "floor": c.floor, "eps": c.eps,
                    **rule}
        self.around(c)
        norm = partial(RMSNorm, eps=c.eps)
        branches: list[nn.Module] = []
        for k in range(c.blocks):
            kind = c.kind(k)
            more: dict[str, Any] = {} if kind == "window" else {"rate": c.rates[kind == "heavy"]}
            if kind == "sparse":
                more["chosen"] = dict(zip(("heads", "width", "top"), c.choice))
            branches.append(CompressedAttention(
                c.dim, c.heads, c.head_dim or c.dim // c.heads, query_latent=c.query_latent, window=c.window or c.context, turned=c.turned,
                groups=c.groups,
                group_width=c.group_width, rotary=c.rotary if kind == "window" else c.far, norm=norm, eps=c.eps, dropout=c.attention_dropout, **more))
            looked_up = k < c.looked_up
            branches.append(MoE(c.dim, c.hidden, c.experts, c.top_k, shared=c.hidden, scores="sqrt_softplus", scale=c.weight, limit=c.limit,
                                correction=not looked_up, table=c.vocab if looked_up else None))
        self.stack = Stack(branches, c.dim, norm=norm, **rule)
        initial_normal(self, 0.02)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None, *, states: bool = False) -> Output:
        """input_ids (batch, tokens); attention_mask (batch, tokens), 1 for a real token; padding stands behind the text."""
        ids = {"ids": input_ids} if self.config.looked_up else {}           # type: ignore[attr-defined]
        y, seen, extras = self.run(self.stack, self.embed(input_ids), states, **causal(attention_mask, position_ids), **ids)
        return Output(None if self.head is None else self.head(y), y, seen, extras)

    @classmethod
    def read(cls, f: Fields) -> DeepSeekV4Config:
        for name, wanted in (("hidden_act", "silu"), ("scoring_func", "sqrtsoftplus"), ("attention_bias", False), ("mlp_bias", False),
                             ("num_key_value_heads", 1),
                             ("n_shared_experts", 1), ("norm_topk_prob", True), ("router_jitter_noise", 0.0)):
            f.same(name, wanted)
        f.skip("rope_theta", "compress_rope_theta", "partial_rotary_factor", "num_nextn_predict_layers", "output_router_logits",
               "router_aux_loss_coef",
               "qk_rope_head_dim", "topk_method")
        f.data["intermediate_size"] = f.take("moe_intermediate_size")
        near, far = f.rope(kind="main"), f.rope(kind="compress")
        numbers = cls.numbers(f, rotary={k: v for k, v in near.items() if k != "partial"}, window=f.take("sliding_window"))
        names = {theirs: ours for ours, theirs in KINDS.items()}
        told, rates = f.take("mlp_layer_types"), f.take("compress_rates")
        looked_up = told.count("hash_moe")
        f.same("mlp_layer_types", ["hash_moe"] * looked_up + ["moe"] * (len(told) - looked_up))
        return DeepSeekV4Config(
            **numbers, far={k: v for k, v in far.items() if k != "partial"}, turned=int(numbers["head_dim"] * near.get("partial", 1.0)),
            query_latent=f.take("q_lora_rank"), groups=f.take("o_groups"), group_width=f.take("o_lora_rank"),
            kinds=tuple(names[t] for t in f.take("layer_types")), rates=(rates[KINDS["sparse"]], rates[KINDS["heavy"]]),
            choice=(f.take("index_n_heads"), f.take("index_head_dim"), f.take("index_topk")), experts=f.take("n_routed_experts"),
            top_k=f.take("num_experts_per_tok"), weight=f.take("routed_scaling_factor"), limit=f.take("swiglu_limit"), looked_up=looked_up,
            lanes=f.take("hc_mult"), iterations=f.take("hc_sinkhorn_iters"), floor=f.take("hc_eps"))

    def written(self) -> dict[str, Any]:
        c: Any = self.config
        part = c.turned / (c.head_dim or c.dim // c.heads)
        made = self.wrote(
            "deepseek_v4", num_key_value_heads=1, moe_intermediate_size=c.hidden, q_lora_rank=c.query_latent, o_groups=c.groups,
            o_lora_rank=c.group_width,
            rope_parameters={name: rope_written({**r, "partial": part}) for name, r in (("main", c.rotary), ("compress", c.far))},
            partial_rotary_factor=part, layer_types=[KINDS[c.kind(k)] for k in range(c.blocks)],
            compress_rates=dict(zip(list(KINDS.values())[1:], c.rates)),
            mlp_layer_types=["hash_moe" if k < c.looked_up else "moe" for k in range(c.blocks)], n_routed_experts=c.experts, sliding_window=c.window,
            num_experts_per_tok=c.top_k, routed_scaling_factor=c.weight, swiglu_limit=c.limit, hc_mult=c.lanes, hc_sinkhorn_iters=c.iterations,
            hc_eps=c.floor, **dict(zip(("index_n_heads", "index_head_dim", "index_topk"), c.choice)))
        del made["intermediate_size"]
        return made

    def rows(self) -> Iterator[Row]:
        c: Any = self.config
        yield from named("embed", "embed")
        yield from named("stack.final_norm", "norm")
        if c.head:
            yield from named("head", "/head")
        for name, other in (("phi", "fn"), ("bias", "base"), ("alpha", "scale")):
            yield Row(f"stack.layers.{2 * c.blocks - 1}.scheme.leave_{name}", f"hc_head_{other}")
        for k in range(c.blocks):
            a, m, theirs = f"stack.layers.{2 * k}", f"stack.layers.{2 * k + 1}", f"layers.{k}"
            for ours, kind in ((a, "attn"), (m, "ffn")):
                yield from named(f"{ours}.scheme.norm", f"{theirs}.{kind}_norm")
                for name, other in (("phi", "fn"), ("bias", "base"), ("alpha", "scale")):
                    yield Row(f"{ours}.scheme.{name}", f"{theirs}.hc_{kind}_{other}")
            yield from _attention(f"{a}.branch", f"{theirs}.attn", c.kind(k), c.groups)
            yield Row(f"{m}.branch.router.weight", f"{theirs}.ffn.gate.weight")
            yield Row(*((f"{m}.branch.table", f"{theirs}.ffn.gate.tid2eid") if k < c.looked_up else (f"{m}.branch.correction",
                                                                                                     f"{theirs}.ffn.gate.bias")))
            for name, other in (("gate", "w1"), ("output", "w2"), ("input", "w3")):
                yield Row(f"{m}.branch.{name}", tuple(f"{theirs}.ffn.experts.{e}.{other}.weight" for e in range(c.experts)), "stacked")
                yield from named(f"{m}.branch.shared.{name}", f"{theirs}.ffn.shared_experts.{other}")


def _attention(ours: str, theirs: str, kind: str, groups: int) -> Iterator[Row]:
    for name, other in (("query_down", "wq_a"), ("query_norm", "q_norm"), ("query", "wq_b"), ("value", "wkv"), ("value_norm", "norm"),
                        ("output", "wo_b")):
        yield from named(f"{ours}.{name}", f"{theirs}.{other}")
    yield Row(f"{ours}.sink", f"{theirs}.attn_sink")
    yield Row(f"{ours}.mix", f"{theirs}.wo_a.weight")
    compressors = {} if kind == "window" else {"summaries": "compressor"}
    if kind == "sparse":
        compressors["chooser.keys"] = "indexer.compressor"
        yield from named(f"{ours}.chooser.query", f"{theirs}.indexer.wq_b")
        yield from named(f"{ours}.chooser.weigh", f"{theirs}.indexer.weights_proj")
    for name, other in compressors.items():
        for part, their in (("value", "wkv"), ("gate", "wgate"), ("norm", "norm")):
            yield from named(f"{ours}.{name}.{part}", f"{theirs}.{other}.{their}")
        yield Row(f"{ours}.{name}.bias", f"{theirs}.{other}.ape")
