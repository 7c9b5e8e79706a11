"""Fields of default configurations that have no default and that no error names: model type -> field -> (value, where it is from).

The last resort. Everything else is guessed from the configuration, the signature and the errors.
"""

from typing import Any

KNOWN: dict[str, dict[str, tuple[Any, str]]] = {
    "dbrx": {"attn_config.clip_qkv": (8.0, "the released model's; None is passed to clamp, which refuses it")},
    "edgetam": {"vision_config.backbone_config.architecture": ("repvit_m1", "the default spells the field archirecture")},
    "edgetam_vision_model": {"backbone_config.architecture": ("repvit_m1", "the default spells the field archirecture")},
    "granite4_vision": {
        "downsample_rate": ("1/2", "a fraction, as its docstring says; None is split at the stroke"),
        "deepstack_layer_map": ([], "no features from inner layers; None is measured"),
    },
    "hunyuan_vl": {"text_config.rope_parameters.mrope_section": ([16, 16, 16, 16], "the released model's; None is measured")},
    "hunyuan_vl_text": {"rope_parameters.mrope_section": ([16, 16, 16, 16], "the released model's; None is measured")},
    "lw_detr": {"projector_scale_factors": ([1.0], "one level of features, as the released tiny model has; none are concatenated")},
}

INDEXER = {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 128, "indexer_budget": 64, "indexer_compress_ratio": 8}
WHY = "the token indexer of its attention; all or none of its sizes may be set, and the layers want them"
KNOWN["qwen4_exp_text"] = {name: (size, WHY) for name, size in INDEXER.items()}
KNOWN["qwen4_exp"] = {f"text_config.{name}": (size, WHY) for name, size in INDEXER.items()}


def default(config_class: Any, model_type: str) -> Any:
    """The default configuration with the fields that are known for its model type."""
    known = KNOWN.get(model_type, {})
    config = config_class(**{path: value for path, (value, _) in known.items() if "." not in path})
    for path, (value, _) in known.items():
        *owners, name = path.split(".")
        owner = config
        for part in owners:
            owner = owner[part] if isinstance(owner, dict) else getattr(owner, part)
        if isinstance(owner, dict):
            owner[name] = value
        else:
            setattr(owner, name, value)
    return config


def told(model_type: str) -> list[str]:
    """What `default` sets, in words."""
    return [f"{path}, now {value}" for path, (value, _) in KNOWN.get(model_type, {}).items()]
