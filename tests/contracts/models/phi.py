"""Phi 1 and 2, Phi 3."""

SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 99,
         "max_position_embeddings": 64}
THREE = {**SMALL, "pad_token_id": 0, "num_key_value_heads": 2}
CASES = [
    {"id": "2", "config": "PhiConfig", "model": "PhiForCausalLM", "kwargs": SMALL, "inputs": "tokens", "truth": "phi"},
    {"id": "2-normed", "config": "PhiConfig", "model": "PhiForCausalLM", "inputs": "tokens",
     "kwargs": {**SMALL, "qk_layernorm": True, "num_key_value_heads": 2, "partial_rotary_factor": 0.25, "hidden_act": "gelu"}},
    {"id": "2-whole", "config": "PhiConfig", "model": "PhiModel", "inputs": "tokens", "output": "last_hidden_state",
     "kwargs": {**SMALL, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0}}},
    {"id": "3", "config": "Phi3Config", "model": "Phi3ForCausalLM", "kwargs": {**THREE, "sliding_window": 5}, "inputs": "tokens"},
    {"id": "3-part", "config": "Phi3Config", "model": "Phi3ForCausalLM", "inputs": "tokens",
     "kwargs": {**THREE, "tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75}}},
]
