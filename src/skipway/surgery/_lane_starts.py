"""How each scheme of several lanes starts at the function of a model that has one: n equal lanes, read as their mean or in turn, written to once.

Lanes have to part in training though they start equal: hyper reads them in turn, mhc and identity_hyper have random projections behind gates that
start shut, gated_residual starts with other gains for each lane whose mean is that of the norm it stands for.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from skipway._errors import RewireError


@dataclass(frozen=True)
class Start:
    """Options that the start needs, what is put into the built scheme, and whether it norms in place of the branch's own norm."""

    put: Callable[[Any], None]
    options: dict[str, Any] = field(default_factory=dict)
    normed: bool = False
    norm_of: Callable[[Any, nn.Module, str], None] | None = None


def _hyper(scheme: Any) -> None:
    """Reads lane k mod n, mixes by I, writes 1: as the scheme starts by itself."""


def _mhc(scheme: Any) -> None:
    scheme.alpha[:2] = 0                                    # p = 1 / n and q = 1; the rows of the mixer sum to one whatever it is


def _identity_hyper(scheme: Any) -> None:
    n, least = scheme.lanes, 1e-6
    scheme.alpha.zero_()
    scheme.bias[:n] = math.log((1 / n - least) / (1 - 1 / n + least))
    scheme.bias[n:] = math.log((1 - least) / (1 + least))


def _gated_residual(scheme: Any) -> None:
    scheme.reader.up.zero_()                                # a gate of one half
    scheme.inject.zero_()                                   # a write of one


def _adopt_rms(scheme: Any, norm: nn.Module, spot: str) -> None:
    weight = getattr(norm, "weight", None)
    eps = getattr(norm, "eps", getattr(norm, "variance_epsilon", None))
    if getattr(norm, "bias", None) is not None or weight is None or eps is None or isinstance(norm, nn.LayerNorm):
        raise RewireError(f"rewire: {spot}: gated_residual norms its lanes by RMS with a gain, and the branch's norm is {type(norm).__name__}; use "
                          "hyper, mhc or identity_hyper")
    with torch.no_grad():
        x = torch.ones(1, weight.numel(), dtype=weight.dtype, device=weight.device)
        gain = norm(x)[0] * math.sqrt(1 + eps)              # some add one to their weight
        spread = torch.linspace(0.5, 1.5, scheme.lanes, dtype=gain.dtype, device=gain.device).unsqueeze(1)
        scheme.reader.gain.copy_(2 * gain * spread)
    scheme.reader.eps = float(eps)


STARTS = {
    "hyper": Start(_hyper),
    "mhc": Start(_mhc, {"start": "even"}),
    "identity_hyper": Start(_identity_hyper, {"leave": "mean"}),
    "gated_residual": Start(_gated_residual, {}, True, _adopt_rms),
}
