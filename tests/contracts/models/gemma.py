"""Gemma 1, 2 and 3.

transformers runs Gemma 2 in its written-out attention alone, whose softmax is of float32 whatever the model is of; `wide_softcap` is the same in the
dtype of the scores, registered by transformers' own means.
"""

import importlib.util
from typing import Any

import torch

SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
         "vocab_size": 99, "max_position_embeddings": 64}
TWO = {**SMALL, "sliding_window": 5, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
THREE = {**SMALL, "num_hidden_layers": 4, "sliding_window": 5, "query_pre_attn_scalar": 24}


def wide_softcap(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor | None, scaling: float,
                 softcap: float | None = None, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    key, value = (t.repeat_interleave(module.num_key_value_groups, 1) for t in (key, value))
    scores = query @ key.transpose(2, 3) * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


if importlib.util.find_spec("transformers") is not None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, eager_mask
    AttentionInterface.register("wide_softcap", wide_softcap)
    AttentionMaskInterface.register("wide_softcap", eager_mask)

CASES = [
    {"id": "3", "config": "Gemma3TextConfig", "model": "Gemma3ForCausalLM", "kwargs": THREE, "inputs": "tokens"},
    {"id": "3-long", "config": "Gemma3TextConfig", "model": "Gemma3ForCausalLM", "inputs": "tokens",
     "kwargs": {**THREE, "attention_bias": True, "sliding_window_pattern": 2, "rope_parameters": {
         "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
         "sliding_attention": {"rope_type": "default", "rope_theta": 1e3}}}},
    {"id": "2", "config": "Gemma2Config", "model": "Gemma2ForCausalLM", "kwargs": TWO, "inputs": "tokens", "attention": "wide_softcap",
     "truth": "gemma2"},
    {"id": "2-base", "config": "Gemma2Config", "model": "Gemma2Model", "kwargs": {**TWO, "attn_logit_softcapping": None}, "inputs": "tokens",
     "attention": "wide_softcap",
     "output": "last_hidden_state"},
    {"id": "1", "config": "GemmaConfig", "model": "GemmaForCausalLM", "kwargs": SMALL, "inputs": "tokens", "truth": "gemma"},
    {"id": "1-untied", "config": "GemmaConfig", "model": "GemmaForCausalLM", "inputs": "tokens",
     "kwargs": {**SMALL, "attention_bias": True, "num_key_value_heads": 1, "tie_word_embeddings": False, "head_dim": 8}},
]
