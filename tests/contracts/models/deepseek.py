"""DeepSeek V2 and V3.

transformers turns V2's positions in complex64 whatever the model is of; `wide_turn` is the same in the dtype of the model, with cos and sin as the
other classes make them.
"""

import importlib.util
from typing import Any

import torch

SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 99,
         "max_position_embeddings": 64, "first_k_dense_replace": 1, "kv_lora_rank": 24, "q_lora_rank": 20, "qk_nope_head_dim": 16,
         "qk_rope_head_dim": 8,
         "v_head_dim": 12, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 28}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1, "mscale": 0.5,
        "mscale_all_dim": 0.9,
        "rope_theta": 10000.0}
THREE = {"config": "DeepseekV3Config", "model": "DeepseekV3ForCausalLM", "inputs": "tokens", "experts": "eager"}
TWO = {**THREE, "config": "DeepseekV2Config", "model": "DeepseekV2ForCausalLM"}


def wide_turn(xq: torch.Tensor, xk: torch.Tensor, turns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    def turned(x: torch.Tensor) -> torch.Tensor:
        a, b, (cos, sin) = x[..., 0::2], x[..., 1::2], turns.to(x.dtype).unsqueeze(2)
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
    return turned(xq), turned(xk)


def cos_and_sin(self: Any, x: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
    angles = position_ids[..., None].float() * self.inv_freq.float()
    return torch.stack((angles.cos(), angles.sin())) * self.attention_scaling


if importlib.util.find_spec("transformers") is not None:
    from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2
    v2.apply_rotary_emb = wide_turn
    v2.DeepseekV2RotaryEmbedding.forward = cos_and_sin

CASES = [
    {"id": "3", "kwargs": {**SMALL, "n_group": 4, "topk_group": 2, "rope_parameters": YARN}, "truth": "deepseek_v3", **THREE},
    {"id": "3-plain", "kwargs": {**SMALL, "n_group": 1, "topk_group": 1, "q_lora_rank": None, "rope_interleave": False, "attention_bias": True,
                                 "norm_topk_prob": False}, **THREE},
    {"id": "2", "kwargs": {**SMALL, "n_group": 4, "topk_group": 2, "topk_method": "group_limited_greedy", "rope_parameters": YARN},
     "truth": "deepseek_v2", **TWO},
    {"id": "2-lite", "kwargs": {**SMALL, "q_lora_rank": None, "routed_scaling_factor": 2.0}, **TWO},
    {"id": "2-base", "kwargs": {**SMALL, "first_k_dense_replace": 3}, "output": "last_hidden_state", **TWO, "model": "DeepseekV2Model"},
]
