"""RoBERTa with and without its head."""

SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99,
         "max_position_embeddings": 40,
         "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
COMMON = {"config": "RobertaConfig", "kwargs": SMALL, "inputs": "tokens"}
CASES = [
    {"id": "words", "model": "RobertaForMaskedLM", "truth": "roberta", **COMMON},
    {"id": "base", "model": "RobertaModel", "output": "last_hidden_state", "extras": ("pooler_output",), **COMMON},
]
