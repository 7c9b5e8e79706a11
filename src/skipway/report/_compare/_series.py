"""Series over seeds: what the figures and the tables of curves are made of. A value is a mean over seeds with the lowest and the highest."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Value:
    """At one place of a series: the middle, with what its band spans, and of how many seeds."""

    x: float
    mid: float
    low: float
    high: float
    seeds: int


def best(record: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The trials of each arm at its best rate that ended, by seed; failed ones have no place in a series."""
    found: dict[str, list[dict[str, Any]]] = {}
    for s in record["summary"]:
        own = [t for t in record["trials"] if t["arm"] == s["arm"] and t["lr"] == s["lr"] and t["state"] in ("finished", "diverged")]
        found[s["arm"]] = sorted(own, key=lambda t: t["seed"])
    return found


def curve(trials: Sequence[dict[str, Any]], split: str, key: str = "loss") -> list[Value]:
    """The mean curve of the seeds that finished, or of those that diverged where none did, over the steps that all of them have."""
    kept = [t for t in trials if t["state"] == "finished"] or list(trials)
    points = [(p["step"], p[key]) for t in kept for p in t["points"] if p["split"] == split and p[key] is not None]
    return _whole(points, statistics.fmean)


def probed(trials: Iterable[dict[str, Any]], last: bool, key: str) -> list[Value]:
    """One quantity by sublayer at the first or the last step that was probed; geometric mean where all values are positive."""
    points = []
    for t in trials:
        steps = [d["step"] for d in t["depths"]]
        at = (max if last else min)(steps, default=None)
        points += [(d["index"], d[key]) for d in t["depths"] if d["step"] == at and d[key] is not None]
    return _whole(points, _geometric)


def diverged(trials: Iterable[dict[str, Any]]) -> list[float]:
    """The steps at which seeds diverged."""
    return sorted(t["step"] for t in trials if t["state"] == "diverged")


def thinned(values: Sequence[Value], most: int) -> list[Value]:
    """At most `most` of them, evenly spread, with the first and the last."""
    if len(values) <= most:
        return list(values)
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def _whole(points: Iterable[tuple[float, float]], middle: Callable[[Sequence[float]], float]) -> list[Value]:
    """Places that all seeds have; at a place that fewer have, a mean would jump for no reason but that."""
    by: dict[float, list[float]] = {}
    for x, y in points:
        by.setdefault(x, []).append(y)
    full = max(map(len, by.values()), default=0)
    return [Value(x, middle(ys), min(ys), max(ys), len(ys)) for x, ys in sorted(by.items()) if len(ys) == full]


def _geometric(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if min(values) > 0 else statistics.fmean(values)
