"""What the thresholds of a preset are held against."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Check:
    """One number beside its threshold."""

    what: str                       # what the number is
    value: float | None             # None: there is no such number, so the check fails
    relation: Literal["<=", ">="]
    bound: float

    @property
    def held(self) -> bool:
        """Whether the number is on the right side of its threshold."""
        return self.value is not None and (self.value <= self.bound if self.relation == "<=" else self.value >= self.bound)


class Seen:
    """Reads numbers of arms, each at its best learning rate, from the record of a report. What is not there is None."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = record
        self.rates = {s["arm"]: s["lr"] for s in record["summary"]}

    def trials(self, arm: str) -> list[dict[str, Any]]:
        """Those that finished or diverged."""
        return [t for t in self.record["trials"] if t["arm"] == arm and t["lr"] == self.rates.get(arm) and t["state"] in ("finished", "diverged")]

    def learned(self, arm: str) -> float | None:
        """Share of seeds that ended at or below the study's threshold."""
        rows = self.trials(arm)
        good = [t for t in rows if t["final"] is not None and t["final"] <= self.record["threshold"]]
        return len(good) / len(rows) if rows else None

    def loss(self, arm: str) -> float | None:
        """Mean held-out loss at the end; None where a seed diverged."""
        return _mean([t["final"] for t in self.trials(arm)])

    def training(self, arm: str) -> float | None:
        """Mean training loss over the last evaluation's steps; None where a seed diverged."""
        rows = self.trials(arm)
        ends = [[p["loss"] for p in t["points"] if p["split"] == "train"] for t in rows if t["state"] == "finished"]
        return _mean([losses[-1] for losses in ends]) if len(ends) == len(rows) else None

    def steps(self, arm: str) -> float | None:
        """Mean steps until the held-out loss is at the study's threshold; None where a seed never got there."""
        held = [[p for p in t["points"] if p["split"] == "held_out" and p["loss"] is not None] for t in self.trials(arm)]
        return _mean([next((p["step"] for p in points if p["loss"] <= self.record["threshold"]), None) for points in held])

    def measure(self, arm: str, name: str) -> float | None:
        """Mean over seeds of a measure at its last step."""
        last = [[m["value"] for m in t["measures"] if m["name"] == name] for t in self.trials(arm)]
        return _mean([values[-1] if values else None for values in last])

    def upper(self, variant: str) -> float | None:
        """Upper end of the interval of a variant's paired difference from its baseline."""
        found = [c["difference"] for c in self.record["comparisons"] if c["variant"] == variant]
        return found[0]["high"] if found and found[0] else None

    def text(self) -> str:
        """The study's threshold, in words."""
        return f"held-out loss of at most {self.record['threshold']:.3g}, half of a blind guess's"


def ratio(a: float | None, b: float | None) -> float | None:
    """a / b, where there are both."""
    return None if a is None or not b else a / b


def less(a: float | None, b: float | None) -> float | None:
    """a - b, where there are both."""
    return None if a is None or b is None else a - b


def _mean(values: list[Any]) -> float | None:
    return statistics.fmean(values) if values and None not in values else None
