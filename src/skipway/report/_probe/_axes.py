"""Axes: where a value stands, and which values are named beside it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

LITTLE = 0.05           # of a step: a value that is so little below zero gets no step of its own


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high`, at 0 to 1 of the height. ticks: values that are named, with their names."""

    low: float
    high: float
    log: bool
    ticks: tuple[tuple[float, str], ...]

    def at(self, value: float) -> float | None:
        """Where a value stands, 0 at the foot and 1 at the head; None where the axis has no place for it."""
        if not math.isfinite(value) or (self.log and value <= 0):
            return None
        low, high, v = (math.log10(x) for x in (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        return min(max((v - low) / (high - low), 0.0), 1.0)


def axis(values: Sequence[float | None], log: bool, zero: bool = True) -> Axis:
    """An axis that holds all finite values; a linear one holds zero, too, unless `zero` is false."""
    found = [v for v in values if v is not None and math.isfinite(v) and (v > 0 or not log)]
    return _decades(found) if log else _linear([*found, 0.0] if zero or not found else found)


def _decades(values: Sequence[float]) -> Axis:
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    first, last = math.log10(low), math.log10(high)
    if last - first < 1:                                # less than a decade: the axis is named at 1, 2 and 5, or closer
        first, last = first - 0.1, last + 0.1
        inside: list[float] = []
        for factors in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7), tuple(1 + i / 10 for i in range(90)), tuple(1 + i / 100 for i in range(900))):
            inside = [v for e in range(math.floor(first), math.ceil(last) + 1) for f in factors for v in [f * 10.0 ** e]
                      if 10 ** first <= v <= 10 ** last]
            if len(inside) > 2:
                break
        inside = inside[::max(1, -(-len(inside) // 6))]
        return Axis(10 ** first, 10 ** last, True, tuple((v, f"{v:.3g}") for v in inside or (low,)))
    start, end = math.floor(first + 1e-9), math.ceil(last - 1e-9)
    step = max(1, math.ceil((end - start) / 5))
    return Axis(10.0 ** start, 10.0 ** end, True, tuple((10.0 ** e, _power(e)) for e in range(start, end + 1, step)))


def _power(exponent: int) -> str:
    return f"{10.0 ** exponent:g}" if -3 <= exponent <= 4 else f"1e{exponent}"


def _linear(values: Sequence[float]) -> Axis:
    low, high = min(values), max(values)
    if low == high:
        low, high = low - 0.05 * abs(low), high + (0.05 * abs(high) or 1)
    rough = (high - low) / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(f * size for f in (1, 2, 2.5, 5, 10) if f * size >= rough * 0.999)
    first, last = math.floor(low / step + LITTLE), math.ceil(high / step - 1e-9)
    named = tuple((i * step, f"{i * step:.6g}".replace("e-0", "e-").replace("e+0", "e")) for i in range(first, last + 1))
    return Axis(first * step, last * step, False, named)
