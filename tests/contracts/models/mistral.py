"""Mistral, with a window and without."""

SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 99,
         "max_position_embeddings": 64}
CASES = [
    {"id": "window", "config": "MistralConfig", "model": "MistralForCausalLM", "kwargs": {**SMALL, "sliding_window": 5}, "inputs": "tokens",
     "truth": "mistral"},
    {"id": "whole", "config": "MistralConfig", "model": "MistralForCausalLM", "kwargs": {**SMALL, "sliding_window": None, "head_dim": 32},
     "inputs": "tokens"},
    {"id": "base", "config": "MistralConfig", "model": "MistralModel", "kwargs": {**SMALL, "sliding_window": 5, "tie_word_embeddings": True},
     "inputs": "tokens", "output": "last_hidden_state"},
]
