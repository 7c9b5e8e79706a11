"""Residual networks. Their branches end in a norm of their own, which shows in the placements of other schemes."""

SMALL = {"embedding_size": 8, "num_labels": 7}
COMMON = {"config": "ResNetConfig", "inputs": "images", "attention": None}
CASES = [
    {"id": "basic", "model": "ResNetForImageClassification", "truth": "resnet_basic",
     "kwargs": {**SMALL, "layer_type": "basic", "hidden_sizes": [8, 16], "depths": [2, 2]}, **COMMON},
    {"id": "bottleneck", "model": "ResNetForImageClassification", "kwargs": {**SMALL, "hidden_sizes": [32, 64, 128], "depths": [1, 2, 1]}, **COMMON},
    {"id": "base", "model": "ResNetModel", "kwargs": {**SMALL, "hidden_sizes": [32, 64], "depths": [2, 1], "num_channels": 1},
     "output": "pooler_output",
     **COMMON},
]
PLACEMENTS = {"none": "output", "pre": "sandwich", "post": "output"}
