"""Intervals of one mean and of a mean of paired differences, and the number of pairs that an effect needs.

Distributions are those of scipy.special: the numbers of scipy.stats in a thirtieth of its time, of which a study of many looks takes thousands.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

RESAMPLES = 1999            # of a bootstrap
FEW = 4                     # below this many values the corrected bootstrap has nothing to correct with
MOST = 100_000              # seeds that are still worth naming
POWER = 0.8


@dataclass(frozen=True)
class Interval:
    """A mean and its t interval; low and high are None below two values."""

    mean: float
    low: float | None
    high: float | None
    sd: float | None            # standard deviation of the values, n - 1 below the line
    n: int


@dataclass(frozen=True)
class Difference:
    """Of a variant from its baseline, over pairs that share a seed: d = variant - baseline."""

    n: int                      # pairs
    mean: float                 # mean of d
    sd: float | None            # standard deviation of d; None below two pairs
    low: float | None           # t interval of the mean of d, at the level that the verdict used before Holm's correction
    high: float | None
    boot_low: float | None      # bootstrap interval of the same level: BCa from 4 pairs on, percentiles below
    boot_high: float | None
    p: float                    # two-sided paired t test; 1 below two pairs
    noise: float | None         # standard deviation of the baseline's values over seeds
    effect: float | None        # |mean| / noise
    needed: int | None          # pairs that show a difference of this size and spread with probability 0.8; None: over 100,000, or unknown


def interval(values: Sequence[float], alpha: float = 0.05) -> Interval:
    """Mean with its t interval of level 1 - alpha. Raises ValueError for no values."""
    if not values:
        raise ValueError("interval: got no values, want at least one")
    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return Interval(mean, None, None, None, n)
    sd = float(np.std(values, ddof=1))
    half = float(special.stdtrit(n - 1, 1 - alpha / 2)) * sd / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, sd, n)


def difference(variant: Sequence[float], baseline: Sequence[float], alpha: float = 0.05, resamples: int = RESAMPLES) -> Difference:
    """The paired difference of two rows of values; place i of both shares a seed. Raises ValueError where they differ in length or are empty."""
    if len(variant) != len(baseline) or not variant:
        raise ValueError(f"difference: got {len(variant)} and {len(baseline)} values, want pairs")
    d = np.asarray(variant, dtype=float) - np.asarray(baseline, dtype=float)
    own = interval([float(x) for x in d], alpha)
    noise = interval(baseline).sd
    effect = abs(own.mean) / noise if noise else None
    if own.sd is None:
        return Difference(1, own.mean, None, None, None, None, None, 1.0, noise, effect, None)
    low, high = _bootstrap(d, alpha, resamples)
    return Difference(own.n, own.mean, own.sd, own.low, own.high, low, high, _p(own.mean, own.sd, own.n), noise, effect,
                      needed(own.mean, own.sd, alpha))


def _p(mean: float, sd: float, n: int) -> float:
    if sd == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * special.stdtr(n - 1, -abs(mean) / sd * math.sqrt(n)))


def _bootstrap(d: "np.ndarray[tuple[int], np.dtype[np.float64]]", alpha: float, resamples: int) -> tuple[float | None, float | None]:
    if not resamples:
        return None, None
    if np.all(d == d[0]):
        return float(d[0]), float(d[0])
    for method in ("BCa", "percentile")[len(d) < FEW:]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stats.DegenerateDataWarning)        # the correction divides by nothing where all but one value are equal
            made = stats.bootstrap((d,), np.mean, vectorized=True, confidence_level=1 - alpha, n_resamples=resamples, rng=np.random.default_rng(0),
                                   method=method)
        low, high = float(made.confidence_interval.low), float(made.confidence_interval.high)
        if math.isfinite(low) and math.isfinite(high):
            return low, high
    return None, None


def needed(mean: float, sd: float, alpha: float = 0.05, power: float = POWER) -> int | None:
    """The fewest pairs at which a two-sided paired t test of level alpha finds a true difference `mean` of spread `sd` with this power.

    From the noncentral t distribution. None where it would take more than 100,000 pairs or the mean is 0.
    """
    if mean == 0:
        return None
    if sd == 0:
        return 2
    size = abs(mean) / sd
    both = float(special.ndtri(1 - alpha / 2) + special.ndtri(power))
    guess = (both / size) ** 2                              # by the normal distribution: the t test needs a few more
    if guess > MOST:
        return None
    n = max(2, math.floor(guess))
    while n > 2 and _power(size, n - 1, alpha) >= power:
        n -= 1
    while _power(size, n, alpha) < power:
        n += 1
    return n if n <= MOST else None


def _power(size: float, n: int, alpha: float) -> float:
    bound, shift = float(special.stdtrit(n - 1, 1 - alpha / 2)), size * math.sqrt(n)
    if n > 1000:                                            # the noncentral t loses its digits there, and is normal
        return float(special.ndtr(shift - bound) + special.ndtr(-bound - shift))
    found = float(1 - special.nctdtr(n - 1, shift, bound) + special.nctdtr(n - 1, shift, -bound))
    return found if math.isfinite(found) else float(special.ndtr(shift - bound))


def holm(ps: Sequence[float]) -> list[float]:
    """p values after Holm's step-down correction, in the order given: max over smaller ones of (m - rank) p, at most 1 (Holm 1979)."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    out, largest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[i]))
        out[i] = largest
    return out
