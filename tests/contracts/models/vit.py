"""The vision transformer, with its head and with its pooler."""

SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48, "image_size": 24, "patch_size": 8,
         "num_labels": 7}
COMMON = {"config": "ViTConfig", "inputs": "images"}
CASES = [
    {"id": "classes", "model": "ViTForImageClassification", "kwargs": SMALL, "truth": "vit", **COMMON},
    {"id": "base", "model": "ViTModel", "kwargs": {**SMALL, "qkv_bias": False, "pooler_output_size": 20, "num_channels": 1},
     "output": "last_hidden_state",
     "extras": ("pooler_output",), **COMMON},
]
