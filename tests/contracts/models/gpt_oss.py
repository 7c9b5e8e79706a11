"""gpt-oss."""

SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
         "vocab_size": 99, "max_position_embeddings": 64, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 5}
YARN = {"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 16,
        "rope_theta": 150000.0}
COMMON = {"config": "GptOssConfig", "inputs": "tokens", "attention": "eager", "experts": "eager"}
CASES = [
    {"id": "gpt_oss", "model": "GptOssForCausalLM", "kwargs": {**SMALL, "rope_parameters": YARN}, "truth": "gpt_oss", **COMMON},
    {"id": "clamped", "model": "GptOssForCausalLM", "kwargs": {**SMALL, "swiglu_limit": 0.2, "attention_bias": False}, **COMMON},
    {"id": "base", "model": "GptOssModel", "kwargs": {**SMALL, "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
     "output": "last_hidden_state", **COMMON},
]
