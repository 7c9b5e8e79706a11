"""Llama: as it was, with the stretched waves of 3.1, and with tied embeddings and biases."""

SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 99,
         "max_position_embeddings": 64}
WAVES = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
         "rope_theta": 5e5}
CASES = [
    {"id": "1", "config": "LlamaConfig", "model": "LlamaForCausalLM", "kwargs": SMALL, "inputs": "tokens", "truth": "llama"},
    {"id": "3", "config": "LlamaConfig", "model": "LlamaForCausalLM", "kwargs": {**SMALL, "num_key_value_heads": 2, "rope_parameters": WAVES},
     "inputs": "tokens"},
    {"id": "tied", "config": "LlamaConfig", "model": "LlamaForCausalLM", "inputs": "tokens",
     "kwargs": {**SMALL, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "num_key_value_heads": 1}},
    {"id": "base", "config": "LlamaConfig", "model": "LlamaModel", "kwargs": SMALL, "inputs": "tokens", "output": "last_hidden_state"},
]
