"""Configurations and classes of transformers models: by model type or from a local config.json, with fields that the user sets."""

import json
import pathlib
from difflib import get_close_matches
from typing import Any

from torch import nn

from skipway._errors import TargetError
from skipway._load import failure
from skipway.targets._build import build_on
from skipway.targets._hf_known import default

# The head that shows most of the model, best first. Encoder models have a causal class too, so masked language models go before causal ones.
ENCODER_DECODER = ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "CAUSAL_LM")
OTHERS = ("MASKED_LM", "CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "IMAGE_CLASSIFICATION", "VIDEO_CLASSIFICATION",
          "CTC", "AUDIO_CLASSIFICATION", "TEXT_TO_WAVEFORM")


def read_config(rest: str, name: str) -> Any:
    """The configuration of a model type with its default sizes, or that of a local config.json."""
    from transformers import CONFIG_MAPPING
    path = pathlib.Path(rest)
    file = path / "config.json" if rest and path.is_dir() else path
    if rest in CONFIG_MAPPING:
        try:
            return default(CONFIG_MAPPING[rest], rest)
        except Exception as error:
            raise failure(error, "its configuration has no defaults", fallback=name) from error
    if not (file.suffix == ".json" or "/" in rest):
        near = get_close_matches(rest, list(CONFIG_MAPPING.keys()), n=4) or ["llama", "bert", "t5", "vit"]
        raise TargetError(f"{name}: transformers has no model type {rest!r}; near it: {', '.join(near)}; a local config.json or folder also works")
    if not file.is_file():
        raise TargetError(f"{name}: no such file {str(file)!r}; give a model type such as hf:llama, or a local config.json or its folder"
                          " (nothing is downloaded)")
    try:
        fields = json.loads(file.read_text())
    except ValueError as error:
        raise TargetError(f"{name}: {file} is not JSON ({error}); give a transformers config.json") from error
    kind = fields.get("model_type") if isinstance(fields, dict) else None
    if kind not in CONFIG_MAPPING:
        remote = " and the code that came with it is never run" if isinstance(fields, dict) and "auto_map" in fields else ""
        near = get_close_matches(str(kind), list(CONFIG_MAPPING.keys()), n=3)
        raise TargetError(f"{name}: {file} has model_type {kind!r}, which this transformers does not know{remote}"
                          f"{'; near it: ' + ', '.join(near) if near else '; want a model type such as llama'}")
    try:
        return CONFIG_MAPPING[kind].from_dict(fields)
    except Exception as error:
        raise failure(error, f"{file} is not a valid {kind} configuration", fallback=name) from error


def override(config: Any, text: str, name: str) -> None:
    """Sets one field, "key=value" or "part.key=value", to a value of the type that the field has now."""
    key, equals, value = text.partition("=")
    if not equals:
        raise TargetError(f"{name}: --config {text!r}: want KEY=VALUE, for example --config num_hidden_layers=2")
    *parts, last = key.strip().split(".")
    owner = config
    for part in parts:
        owner = getattr(owner, part, None)
    last = getattr(owner, "attribute_map", {}).get(last, last)
    known = sorted(set(owner.to_dict()) | set(getattr(owner, "attribute_map", {}))) if hasattr(owner, "to_dict") else []
    if last not in known:
        near = get_close_matches(last, known, n=3) or known[:6]
        raise TargetError(f"{name}: --config {text!r}: {type(owner if known else config).__name__} has no field {key.strip()!r}; "
                          f"near it: {', '.join(near) or 'none'}")
    setattr(owner, last, _typed(value.strip(), getattr(owner, last), f"{name}: --config {text!r}"))


def _typed(value: str, now: Any, where: str) -> Any:
    if isinstance(now, str):
        return value
    try:
        new = json.loads({"True": "true", "False": "false", "None": "null"}.get(value, value))
    except ValueError:
        if now is None:
            return value
        raise TargetError(f"{where}: got {value!r}, want {type(now).__name__} as it is now ({now!r})") from None
    if isinstance(now, float) and isinstance(new, int) and not isinstance(new, bool):
        return float(new)
    if now is not None and new is not None and type(new) is not type(now):
        raise TargetError(f"{where}: got {type(new).__name__} {value}, want {type(now).__name__} as it is now ({now!r})")
    return new


def model_classes(config: Any, name: str) -> list[Any]:
    """The class that the configuration names; else the best head there is for its type, then other heads, then the bare model.

    Raises TargetError where there is none.
    """
    import transformers
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto
    for named in getattr(config, "architectures", None) or ():
        if isinstance(found := getattr(transformers, named, None), type):
            return [found]
    order: tuple[str, ...] = (*ENCODER_DECODER, *OTHERS) if getattr(config, "is_encoder_decoder", False) else OTHERS
    if hasattr(config, "text_config") and hasattr(config, "vision_config"):     # an image classifier would drop the text side
        order = tuple(task for task in order if task != "IMAGE_CLASSIFICATION")
    found_all: list[Any] = []
    why = "it is a part of a larger model, name that instead"
    for mapping in (*(getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING", {}) for task in order), modeling_auto.MODEL_MAPPING):
        try:
            found = mapping.get(type(config), ())
        except (ValueError, AttributeError) as error:       # the table names a class that the package does not have
            why = str(error).splitlines()[0]
            continue
        found_all += found if isinstance(found, (tuple, list)) else [found]
    if not found_all:                           # a configuration whose own type is not the one that it is registered under
        kinds = [kind for kind, made in CONFIG_MAPPING.items() if made is type(config)]
        named = [modeling_auto.MODEL_MAPPING_NAMES.get(kind) for kind in kinds]
        found_all = [cls for cls in (getattr(transformers, n, None) for n in named if isinstance(n, str)) if isinstance(cls, type)]
    if not found_all:
        raise TargetError(f"{name}: transformers has no model class for {type(config).__name__}; {why}")
    return list(dict.fromkeys(found_all))


def make(cls: Any, config: Any, device: str, name: str) -> tuple[nn.Module, tuple[str, ...]]:
    """The model on `device` in evaluation mode, without a cache of keys and values, and notes."""
    for part in without_cache(config):
        if device == "meta" and hasattr(part, "_experts_implementation"):
            part._experts_implementation = "batched_mm"     # the other ways to run experts look at which tokens chose them
    return build_on(device, lambda: cls(config), f"{cls.__name__} cannot be built from this configuration", name)


def without_cache(config: Any) -> list[Any]:
    """The configuration and those inside it, told to keep no keys and values of earlier tokens."""
    parts = [config, *(v for v in vars(config).values() if hasattr(v, "to_dict"))]
    for part in parts:
        if hasattr(part, "use_cache"):
            part.use_cache = False
    return parts
