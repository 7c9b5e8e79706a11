"""Rotary positions: queries and keys are turned by angles that grow with the position, so that their product knows only distances."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import UsageError

SCALINGS: dict[str, tuple[str, ...]] = {        # the options of each kind of scaling, required first
    "linear": ("factor",),
    "ntk": ("factor",),
    "llama3": ("factor", "low", "high", "original"),
    "yarn": ("factor", "original", "beta_fast", "beta_slow", "attention_factor", "truncate", "mscale", "mscale_all"),
}


def stretch(factor: float, mscale: float = 1.0) -> float:
    """0.1 mscale ln(factor) + 1, by which yarn makes scores larger; 1 where nothing is stretched."""
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


class Rotary(nn.Module):
    """Turns pairs of channels of a head: (a, b) -> (a cos t - b sin t, a sin t + b cos t), t = position / theta^(2 i / width) for pair i.

    head_dim        width of a head
    theta           base of the wavelengths
    partial         part of the head that is turned, its first channels; the rest passes
    interleaved     pairs are neighbours (0, 1), (2, 3), ...; otherwise channel i goes with i + width / 2, as in Llama
    scaling         stretches the positions for contexts longer than those trained on: {"kind": ..., ...} with kind
                    "linear" (factor); "ntk" (factor: theta factor^(width / (width - 2))); "llama3" (factor, low, high, original: long waves are
                    stretched, short ones kept); "yarn" (factor, original, beta_fast 32, beta_slow 1, attention_factor, truncate True; mscale,
                                                         mscale_all: where
                    both are there, attention_factor is the quotient of their `stretch`)

    x is (batch, heads, tokens, head_dim); positions (tokens) or (batch, tokens), by default 0, 1, 2, ... Angles are computed in float32.
    Raises UsageError where a width is odd or an option unknown. Source: Su et al., RoFormer, 2021, arXiv 2104.09864.
    """

    frequencies: Tensor

    def __init__(self, head_dim: int, *, theta: float = 10000.0, partial: float = 1.0, interleaved: bool = False,
                 scaling: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.width, self.theta, self.interleaved = int(head_dim * partial), theta, interleaved
        if self.width % 2 or not 0 < self.width <= head_dim:
            raise UsageError(f"rotary positions of {self.width} of the {head_dim} channels of a head; wanted an even number of them, choose partial=")
        self.scaling = dict(scaling or {})
        frequencies, self.amplitude = _frequencies(self.width, theta, dict(self.scaling))
        self.register_buffer("frequencies", frequencies, persistent=False)

    def reset(self, device: torch.device | str = "cpu") -> None:
        """Computes the frequencies anew, as is needed where the module was built on the meta device."""
        with torch.device(device):
            self.frequencies, _ = _frequencies(self.width, self.theta, dict(self.scaling))

    def table(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin for positions, each (..., tokens, width / 2), in float32."""
        angles = positions[..., None].float() * self.frequencies.float()
        return angles.cos() * self.amplitude, angles.sin() * self.amplitude

    def forward(self, x: Tensor, positions: Tensor | None = None, table: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """x turned; a table that is given saves its computing."""
        if table is None:
            table = self.table(torch.arange(x.shape[-2], device=x.device) if positions is None else positions)
        cos, sin = (t.to(x.dtype) if t.ndim == 2 else t.to(x.dtype).unsqueeze(-3) for t in table)
        turned, rest = x[..., :self.width], x[..., self.width:]
        if self.interleaved:
            a, b = turned[..., 0::2], turned[..., 1::2]
            out = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
        else:
            a, b = turned.chunk(2, -1)
            out = torch.cat((a * cos - b * sin, a * sin + b * cos), -1)
        return out if rest.shape[-1] == 0 else torch.cat((out, rest), -1)

    def extra_repr(self) -> str:
        """Width and options."""
        told = f"{self.width}, theta={self.theta:g}" + (", interleaved" if self.interleaved else "")
        return told + "".join(f", {k}={v}" for k, v in self.scaling.items())


def _frequencies(width: int, theta: float, scaling: dict[str, Any]) -> tuple[Tensor, float]:
    """Angle per position of each pair, and the factor on cos and sin."""
    kind = scaling.pop("kind", None)
    if kind is None and not scaling:
        return _plain(width, theta), 1.0
    if kind not in SCALINGS:
        raise UsageError(f"rotary scaling of kind {kind!r}; wanted one of {', '.join(SCALINGS)}")
    unknown = sorted(set(scaling) - set(SCALINGS[kind]))
    if unknown or "factor" not in scaling or (kind in ("llama3", "yarn") and "original" not in scaling):
        raise UsageError(f"rotary scaling {kind} got {', '.join(sorted(scaling)) or 'nothing'}; it takes {', '.join(SCALINGS[kind])}")
    factor = float(scaling.pop("factor"))
    if kind == "linear":
        return _plain(width, theta) / factor, 1.0
    if kind == "ntk":
        return _plain(width, theta * factor ** (width / (width - 2))), 1.0
    return (_llama3(_plain(width, theta), factor, **scaling), 1.0) if kind == "llama3" else _yarn(width, theta, factor, **scaling)


def _plain(width: int, theta: float) -> Tensor:
    return 1.0 / _waves(width, theta)


def _waves(width: int, theta: float) -> Tensor:
    return torch.pow(theta, torch.arange(0, width, 2, dtype=torch.float32) / width)


def _llama3(plain: Tensor, factor: float, original: int, low: float = 1.0, high: float = 4.0) -> Tensor:
    """Waves longer than original / low are stretched, shorter than original / high kept, those between mixed."""
    turns = original * plain / (2 * math.pi)                # how often a wave turns over the original context
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    return plain * (smooth + (1 - smooth) / factor)


def _yarn(width: int, theta: float, factor: float, original: int, beta_fast: float = 32.0, beta_slow: float = 1.0,
          attention_factor: float | None = None, truncate: bool = True, mscale: float = 0.0, mscale_all: float = 0.0) -> tuple[Tensor, float]:
    """Pairs that turn more often than beta_fast are kept, less often than beta_slow stretched, those between mixed along the index of the pair."""
    def pair(turns: float) -> float:
        return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = pair(beta_fast), pair(beta_slow)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    stretched = ((torch.arange(width // 2, dtype=torch.float32) - first) / max(last - first, 0.001)).clamp(0, 1)
    waves = _waves(width, theta)
    own = stretch(factor, mscale) / stretch(factor, mscale_all) if mscale and mscale_all else stretch(factor)
    amplitude = own if attention_factor is None else attention_factor
    kept = 1 - stretched                                    # operations in the order of the published code, so that float32 rounds alike
    return 1.0 / (factor * waves) * (1 - kept) + 1.0 / waves * kept, amplitude
