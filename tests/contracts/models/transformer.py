"""The transformer of 2017, as Marian has it."""

SMALL = {"vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 8,
         "encoder_ffn_dim": 64, "decoder_ffn_dim": 48, "max_position_embeddings": 40, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
         "decoder_start_token_id": 2, "dropout": 0.0, "scale_embedding": True, "activation_function": "swish"}
COMMON = {"config": "MarianConfig", "inputs": "pair"}
CASES = [
    {"id": "marian", "model": "MarianMTModel", "kwargs": SMALL, "truth": "marian", **COMMON},
    {"id": "base", "model": "MarianModel", "kwargs": {**SMALL, "scale_embedding": False, "activation_function": "relu"},
     "output": "last_hidden_state",
     **COMMON},
]
