"""T5 v1.0 and v1.1."""

SMALL = {"d_model": 32, "d_kv": 12, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4, "vocab_size": 99, "dropout_rate": 0.0,
         "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12}
GATED = {**SMALL, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
COMMON = {"config": "T5Config", "inputs": "pair"}
CASES = [
    {"id": "1.0", "model": "T5ForConditionalGeneration", "kwargs": SMALL, "truth": "t5", **COMMON},
    {"id": "1.1", "model": "T5ForConditionalGeneration", "kwargs": GATED, **COMMON},
    {"id": "base", "model": "T5Model", "kwargs": SMALL, "output": "last_hidden_state", **COMMON},
]
# transformers ties the head of v1.1 in a model that it makes, and not in one that it reads from a checkpoint with a head of its own, as published.
BESIDE = {f"1.1-{size}": 32128 * dim for size, dim in (("small", 512), ("base", 768), ("large", 1024), ("xl", 2048), ("xxl", 4096))}
