"""ALBERT: one block at every depth, and two groups of them."""

SMALL = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99,
         "max_position_embeddings": 40,
         "embedding_size": 16, "num_hidden_groups": 1}
COMMON = {"config": "AlbertConfig", "inputs": "tokens", "more": {"token_type_ids": 2}}
CASES = [
    {"id": "words", "model": "AlbertForMaskedLM", "truth": "albert", "kwargs": SMALL, **COMMON},
    {"id": "groups", "model": "AlbertModel", "output": "last_hidden_state", "extras": ("pooler_output",),
     "kwargs": {**SMALL, "num_hidden_groups": 2, "hidden_act": "gelu"}, **COMMON},
    {"id": "pretraining", "model": "AlbertForPreTraining", "output": "prediction_logits", "kwargs": SMALL, **COMMON},
]
