"""GPT-2."""

SMALL = {"n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 99, "n_positions": 40, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
CASES = [
    {"id": "gpt2", "config": "GPT2Config", "model": "GPT2LMHeadModel", "kwargs": SMALL, "inputs": "tokens", "truth": "gpt2"},
    {"id": "base", "config": "GPT2Config", "model": "GPT2Model", "kwargs": {**SMALL, "n_inner": 48, "activation_function": "gelu"},
     "inputs": "tokens",
     "output": "last_hidden_state"},
]
