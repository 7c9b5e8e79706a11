"""A design that looks after every added seed and still holds its error rate.

Under no difference and normal noise, the path of the paired t statistic over n = first, ..., last pairs has one law whatever the noise's size. The
nominal level is the value a for which P(the smallest p value of the path is below a) is the stated rate (Pocock 1977, for the t statistic),
found by simulation of that law with a fixed seed. Several comparisons share the rate in equal parts (Bonferroni).
"""

import functools
import math

import numpy as np
from scipy import stats

PATHS = 100_000
CHUNK = 10_000


@functools.cache
def nominal(alpha: float, first: int, last: int, comparisons: int = 1, paths: int = PATHS) -> float:
    """The level that each look's p value is held against, so that all looks and comparisons together err with probability at most alpha.

    Two standard errors of the simulation are taken off. Raises ValueError where the looks make no sense.
    """
    if not 2 <= first <= last or comparisons < 1 or not 0 < alpha < 1:
        raise ValueError(f"nominal: got looks from {first} to {last} pairs, {comparisons} comparisons, rate {alpha}; want 2 <= first <= last "
                         "and 0 < rate < 1")
    rate = alpha / comparisons
    smallest = np.concatenate([_smallest(first, last, CHUNK, k) for k in range(max(1, paths // CHUNK))])
    safe = rate - 2 * math.sqrt(rate * (1 - rate) / len(smallest))
    return min(rate, float(np.quantile(smallest, max(safe, 1 / len(smallest)))))


def _smallest(first: int, last: int, paths: int, seed: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """The smallest p value of each path."""
    noise = np.random.default_rng(seed).standard_normal((paths, last))
    n = np.arange(1, last + 1)
    sums, squares = np.cumsum(noise, 1), np.cumsum(noise ** 2, 1)
    n, sums, squares = n[first - 1:], sums[:, first - 1:], squares[:, first - 1:]
    variance = (squares - sums ** 2 / n) / (n - 1)
    t = np.abs(sums) / np.sqrt(n * np.maximum(variance, 1e-300))
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = (2 * stats.t.sf(t, n - 1)).min(1)
    return found
