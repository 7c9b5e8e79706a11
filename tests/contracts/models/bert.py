"""BERT with its heads."""

SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99,
         "max_position_embeddings": 40,
         "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
COMMON = {"config": "BertConfig", "kwargs": SMALL, "inputs": "tokens", "more": {"token_type_ids": 2, "position_ids": 40}}
CASES = [
    {"id": "words", "model": "BertForMaskedLM", "truth": "bert", **COMMON},
    {"id": "base", "model": "BertModel", "output": "last_hidden_state", "extras": ("pooler_output",), **COMMON},
    {"id": "pretraining", "model": "BertForPreTraining", "output": "prediction_logits", **COMMON},
]
