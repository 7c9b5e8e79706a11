"""GPT of 2018."""

SMALL = {"n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 99, "n_positions": 40, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
CASES = [
    {"id": "gpt", "config": "OpenAIGPTConfig", "model": "OpenAIGPTLMHeadModel", "kwargs": SMALL, "inputs": "tokens", "truth": "openai_gpt",
     "attention": "eager"},
    {"id": "base", "config": "OpenAIGPTConfig", "model": "OpenAIGPTModel", "kwargs": {**SMALL, "afn": "relu"}, "inputs": "tokens",
     "output": "last_hidden_state", "attention": "eager"},
]
