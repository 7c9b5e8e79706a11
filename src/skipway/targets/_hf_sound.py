"""Inputs of sound: waves, spectrograms, codes."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from skipway.targets._hf_context import BATCH, TOKENS, Context

Maker = Callable[[str, Context], Sequence[Any]]
SAMPLES, STEPS = 16_000, 128


def wave(name: str, c: Context) -> list[torch.Tensor]:
    """One second of sound (batch, sample) or (batch, channel, sample); a spectrogram where the configuration has its sizes."""
    bins, length = c.first("num_mel_bins"), c.first("max_length")
    made = [c.normal(BATCH, int(length), int(bins))] if isinstance(bins, int) and isinstance(length, int) else []
    channels = c.number(1, "audio_channels", "channels")
    step = c.first("hop_length", "frame_size") or 1
    lengths = [SAMPLES] + [size * max(1, SAMPLES // size) for size in (*reversed(c.sizes), step) if isinstance(size, int) and 1 < size <= SAMPLES]
    for count in dict.fromkeys(lengths):
        made += [c.normal(BATCH, count), c.normal(BATCH, channels, count), c.normal(1, channels, count)]
    return made


def spectrogram(name: str, c: Context) -> list[torch.Tensor]:
    """Mel features: Whisper wants all the positions of its encoder, halved by a strided convolution, channels first; others (batch, step, bin)."""
    bins = c.number(80, "num_mel_bins", "input_feat_per_channel", "feature_size", "input_dim", "n_mels")
    made = []
    if c.first("max_source_positions") is not None and c.first("num_mel_bins") is not None:
        made.append(c.normal(BATCH, bins, 2 * c.number(0, "max_source_positions")))
    square = c.first("spec_size")
    if isinstance(square, int):
        made.append(c.normal(BATCH, 1, square * 4, bins))
    for width in dict.fromkeys([bins, *(s for s in reversed(c.sizes) if s <= 4096)]):
        made += [c.normal(BATCH, STEPS, width), c.normal(BATCH, width, STEPS)]
    return [*made, c.normal(BATCH, 1, STEPS, bins), c.normal(bins, 2 * STEPS)]


def lengths(name: str, c: Context) -> list[torch.Tensor]:
    """How long each example is: all of it."""
    value = next((v for n, v in c.values.items() if "mask" not in n and isinstance(v, torch.Tensor) and v.is_floating_point()), None)
    return [torch.full((BATCH,), int(n), dtype=torch.long) for n in ((TOKENS,) if value is None else (value.shape[-1], value.shape[1]))]


def codes(name: str, c: Context) -> list[torch.Tensor]:
    """Codes of a codec (batch, codebook, step)."""
    return [c.whole(c.number(1024, "codebook_size", "vocab_size"), BATCH, c.number(8, "num_quantizers", "n_codebooks", "num_codebooks"), TOKENS)]


def longer(name: str, c: Context) -> list[torch.Tensor]:
    """No example is longer than what is given."""
    return [torch.zeros(BATCH, 1, dtype=torch.bool)]


MAKERS: dict[str, Maker] = {
    r"input_values|audio_values|\w+_input_values": wave,
    r"input_features|audio_mel|\w+_input_features|spectrogram\w*": spectrogram,
    r"lengths|\w+_lengths": lengths,
    r"audio_codes": codes,
    r"is_longer": longer,
}
