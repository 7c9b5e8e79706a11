"""Inputs for a transformers model, from its `main_input_name`, its forward's signature and its configuration."""

import inspect
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from skipway._errors import TargetError
from skipway.targets._given import Given

BATCH, TOKENS, TARGET_TOKENS, SAMPLES = 2, 16, 12, 16_000     # decoder and encoder lengths differ, so that they cannot be confused


def inputs_for(model: nn.Module, config: Any, name: str) -> Given:
    """Keyword arguments for one forward, with real values also where the model has none, filled from a fixed seed."""
    accepted = inspect.signature(model.forward).parameters
    main = getattr(model, "main_input_name", "input_ids")
    if main not in accepted:
        main = next((n for n in ("input_ids", "pixel_values", "input_values", "input_features", "inputs_embeds") if n in accepted), main)
    wanted = [main]
    if "decoder_input_ids" in accepted and (getattr(config, "is_encoder_decoder", False) or main != "input_ids"):
        wanted.append("decoder_input_ids")
    if _needs_both(model, config, main):
        wanted += [n for n in ("input_ids", "pixel_values") if n in accepted and n != main]
    missing = [n for n, p in accepted.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD and n not in wanted]
    if missing:
        how = " ".join(f'--input "{n}=float32[2,16,64]"' for n in (*wanted, *missing)) + ", or --inputs FILE.py:FUNCTION"
        raise TargetError(f"{name}: its forward also needs {', '.join(missing)}, which cannot be guessed; give all: {how}")
    return Given((), {n: _make(n, config, name) for n in wanted})


def _needs_both(model: nn.Module, config: Any, main: str) -> bool:
    """True for models that hold a text and an image side and compare them, instead of one that may read text alone."""
    both = hasattr(config, "vision_config") and (hasattr(config, "text_config") or main == "pixel_values")
    generates = getattr(type(model), "can_generate", lambda: False)()
    return both and not generates


def _make(name: str, config: Any, target: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if name in ("input_ids", "decoder_input_ids"):
        size = int(first(config, "vocab_size", "src_vocab_size") or 1000)
        length = min(TOKENS if name == "input_ids" else TARGET_TOKENS, int(first(config, "max_position_embeddings", "n_positions") or TOKENS))
        return torch.randint(0, size, (BATCH, length), generator=generator)
    if name == "pixel_values":
        return torch.randn(_image(config), generator=generator)
    if name == "pixel_values_videos":
        return torch.randn(_image(config, frames=True), generator=generator)
    if name == "input_features":
        return torch.randn(_features(config), generator=generator)
    if name == "input_values":
        bins = first(config, "num_mel_bins")
        length = first(config, "max_length")
        return torch.randn((BATCH, int(length), int(bins)) if bins and length else (BATCH, SAMPLES), generator=generator)
    if name == "inputs_embeds":
        return torch.randn((BATCH, TOKENS, int(first(config, "hidden_size", "d_model") or 0)), generator=generator)
    how = f'--input "{name}=float32[2,16,64]" or --inputs FILE.py:FUNCTION'
    raise TargetError(f"{target}: its main input {name!r} cannot be guessed; give it: {how}")


def _features(config: Any) -> tuple[int, ...]:
    """Mel features: Whisper wants all the positions of its encoder, halved by a strided convolution; channels first there."""
    bins = int(first(config, "num_mel_bins", "input_feat_per_channel", "feature_size", "input_dim", "n_mels") or 80)
    if hasattr(config, "max_source_positions") and hasattr(config, "num_mel_bins"):
        return BATCH, bins, 2 * int(config.max_source_positions)
    return BATCH, 128, bins


def _image(config: Any, frames: bool = False) -> tuple[int, ...]:
    channels = int(first(config, "num_channels", "in_channels", "in_chans") or 3)
    size = first(config, "image_size", "img_size", "input_size") or 224
    if isinstance(size, dict):
        size = (size.get("height", 224), size.get("width", 224))
    height, width = (size, size) if isinstance(size, (int, float)) else (size[-2], size[-1])
    count = first(config, "num_frames")
    if count or frames:
        return BATCH, int(count or 8), channels, int(height), int(width)
    return BATCH, channels, math.floor(height), math.floor(width)


def first(config: Any, *names: str) -> Any:
    """The first of the fields that the configuration, or one of the configurations inside it, holds."""
    for part in _parts(config):
        for name in names:
            value = getattr(part, name, None)
            if value is not None:
                return value
    return None


def _parts(config: Any) -> Iterator[Any]:
    yield config
    for value in vars(config).values():
        if hasattr(value, "to_dict"):
            yield from _parts(value)
