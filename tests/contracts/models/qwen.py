"""Qwen 2, 3 and 3-MoE."""

SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 99,
         "max_position_embeddings": 64}
HEADS = {**SMALL, "head_dim": 32}
EXPERTS = {**HEADS, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "num_hidden_layers": 4}
CASES = [
    {"id": "3", "config": "Qwen3Config", "model": "Qwen3ForCausalLM", "kwargs": HEADS, "inputs": "tokens", "truth": "qwen3"},
    {"id": "3-window", "config": "Qwen3Config", "model": "Qwen3ForCausalLM", "inputs": "tokens",
     "kwargs": {**HEADS, "attention_bias": True, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1,
                "tie_word_embeddings": True}},
    {"id": "2", "config": "Qwen2Config", "model": "Qwen2ForCausalLM", "kwargs": SMALL, "inputs": "tokens", "truth": "qwen2"},
    {"id": "2-window", "config": "Qwen2Config", "model": "Qwen2Model", "inputs": "tokens", "output": "last_hidden_state",
     "kwargs": {**SMALL, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2}},
    {"id": "3-moe", "config": "Qwen3MoeConfig", "model": "Qwen3MoeForCausalLM", "inputs": "tokens", "experts": "eager",
     "kwargs": {**EXPERTS, "norm_topk_prob": True, "mlp_only_layers": [1]}},
    {"id": "3-moe-step", "config": "Qwen3MoeConfig", "model": "Qwen3MoeForCausalLM", "inputs": "tokens", "experts": "eager",
     "kwargs": {**EXPERTS, "decoder_sparse_step": 2, "use_sliding_window": True, "sliding_window": 6}},
]
