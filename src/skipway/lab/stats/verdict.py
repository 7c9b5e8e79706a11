"""From final losses to one word and one sentence for each variant: better, worse, no difference shown, or diverged."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skipway.lab.stats.paired import RESAMPLES, Difference, difference, holm
from skipway.lab.stats.sequential import nominal

VERDICTS = ("better", "worse", "no difference shown", "diverged")
GUARD = 0.8         # of alpha, what p values are held against: noise is not exactly normal, and the lighter its tails the more often the t test errs
Table = Mapping[float, Mapping[int, float | None]]          # learning rate -> seed -> final held-out loss; None where the trial diverged


@dataclass(frozen=True)
class Design:
    """How often the numbers are looked at."""

    alpha: float = 0.05         # rate of false verdicts over all comparisons and looks; p values are held against GUARD of it
    first: int = 3              # seeds at the first look
    last: int = 3               # seeds at the last; more than first: a look after every added seed


@dataclass(frozen=True)
class Comparison:
    """One variant against the baseline of its group, each at its best learning rate."""

    variant: str
    baseline: str
    lr: float | None                # the variant's best rate; None where there are no results yet
    baseline_lr: float | None
    difference: Difference | None   # None where either diverged or there are no pairs
    p: float | None                 # after Holm; in a sequential design, of this look
    level: float | None             # what p was held against
    verdict: str                    # one of VERDICTS
    sentence: str
    notes: tuple[str, ...] = ()
    diverged: int = 0               # seeds that diverged at the variant's best rate
    seeds: int = 0                  # seeds that the comparison rests on
    decided: bool = False           # whether a sequential design may stop


def tuned(table: Table) -> float | None:
    """The best learning rate: fewest diverged seeds, then the lowest mean. None for an empty table."""
    ranked = []
    for lr, row in table.items():
        kept = [v for v in row.values() if v is not None]
        if row:
            ranked.append((len(row) - len(kept), sum(kept) / len(kept) if kept else math.inf, lr))
    return min(ranked)[2] if ranked else None


def compare(tables: Mapping[str, Table], baseline: str, design: Design = Design(), rates: Mapping[str, float] | None = None,
            resamples: int = RESAMPLES) -> list[Comparison]:
    """A comparison for each variant but the baseline, in order.

    rates: learning rates that an earlier look of a sequential design has fixed, by variant; tuned here where it names none.
    """
    others = [name for name in tables if name != baseline]
    looks = design.last > design.first
    rate = GUARD * design.alpha
    level = nominal(rate, design.first, design.last, len(others)) if looks and others else rate
    found = [_Pair(name, tables[name], baseline, tables[baseline], level, rates or {}, resamples) for name in others]
    ps = [pair.p for pair in found]
    adjusted = ps if looks else holm(ps)
    return [pair.judged(p, level, looks, len(others), _complete(pair, design)) for pair, p in zip(found, adjusted, strict=True)]


def _complete(pair: "_Pair", design: Design) -> bool:
    """Whether the first look's seeds are there; before them nothing is decided."""
    return pair.n >= design.first


class _Pair:
    """The numbers of one comparison."""

    def __init__(self, name: str, table: Table, base: str, base_table: Table, level: float, rates: Mapping[str, float], resamples: int) -> None:
        self.name, self.base = name, base
        self.lr, self.base_lr = (rates.get(n, tuned(t)) for n, t in ((name, table), (base, base_table)))
        row = table.get(self.lr, {}) if self.lr is not None else {}
        base_row = base_table.get(self.base_lr, {}) if self.base_lr is not None else {}
        seeds = sorted(set(row) & set(base_row))
        self.n = len(seeds)
        self.own, self.other = [row[s] for s in seeds], [base_row[s] for s in seeds]
        self.lost, self.base_lost = self.own.count(None), self.other.count(None)
        self.difference: Difference | None = None
        self.p = 1.0
        self.notes = [*_edge(name, table, self.lr), *_edge(base, base_table, self.base_lr)]
        if seeds and not self.lost and not self.base_lost:
            self.difference = difference([v for v in self.own if v is not None], [v for v in self.other if v is not None], level, resamples)
            self.p = self.difference.p
        elif seeds and {self.lost, self.base_lost} == {0, self.n}:
            # Were both to diverge with the same chance q, all of one and none of the other would have probability 2 (q (1 - q))^n <= 2 / 4^n.
            self.p = 2 / 4 ** self.n

    def judged(self, p: float, level: float, looks: bool, comparisons: int, complete: bool) -> Comparison:
        sure = complete and p < level
        verdict, sentence = self._words(p, sure, looks, comparisons, level)
        notes = list(self.notes)
        if self.difference is not None and self.difference.n < 3:
            notes.append(f"{self.difference.n} seeds say next to nothing about the spread; take 3 or more")
        return Comparison(self.name, self.base, self.lr, self.base_lr, self.difference, p if self.n else None, level, verdict, sentence,
                          tuple(notes), self.lost, self.n, sure or (complete and self.lost + self.base_lost > 0))

    def _words(self, p: float, sure: bool, looks: bool, comparisons: int, level: float) -> tuple[str, str]:
        if not self.n:
            return "no difference shown", f"{self.name} and {self.base} have no seed in which both came to an end, so there is nothing to compare."
        if self.lost:
            also = f"; {self.base} did in {self.base_lost}" if self.base_lost else f"; {self.base} trained in all of them"
            return "diverged", f"{self.name} diverged in {self.lost} of {self.n} seeds even at its best learning rate {self.lr:g}{also}."
        if self.base_lost:
            said = (f"{self.base} diverged in {self.base_lost} of {self.n} seeds even at its best learning rate {self.base_lr:g}, "
                    f"and {self.name} trained in all")
            if sure:
                return "better", f"{said}; equal chances of diverging would give this with a probability of at most {p:.2g}."
            return "no difference shown", f"{said}; that is too few seeds for a verdict (probability {p:.2g} under equal chances)."
        return self._numbers(p, sure, looks, comparisons, level)

    def _numbers(self, p: float, sure: bool, looks: bool, comparisons: int, level: float) -> tuple[str, str]:
        d = self.difference
        assert d is not None
        mean, base = (sum(v for v in row if v is not None) / d.n for row in (self.own, self.other))
        beside = f", {d.effect:.2g} times the seed noise of {self.base}" if d.effect is not None else ""
        if d.low is None or d.high is None:
            return "no difference shown", (f"{self.name} ended at {mean:.4g} and {self.base} at {base:.4g} in one shared seed; "
                                           "one pair shows no spread, so there is no verdict.")
        which = "of this look" if looks else f"after Holm over {comparisons}" if comparisons > 1 else "of the paired t test"
        facts = (f"{mean:.4g} against {base:.4g}, difference {d.mean:+.3g} ({100 * (1 - level):.3g} % interval {d.low:+.3g} to {d.high:+.3g}, "
                 f"{d.n} paired seeds, p {p:.2g} {which}, held against {level:.3g}){beside}")
        if sure:
            word = "better" if d.mean < 0 else "worse"
            return word, f"{self.name} ended at a {'lower' if d.mean < 0 else 'higher'} held-out loss than {self.base}: {facts}."
        more = f" A difference of this size would need about {d.needed} seeds to show." if d.needed is not None and d.needed > d.n else ""
        return "no difference shown", f"Nothing shows that {self.name} and {self.base} differ: {facts}.{more}"


def _edge(name: str, table: Table, lr: float | None) -> Sequence[str]:
    rates = sorted(table)
    if lr is None or len(rates) < 2 or lr not in (rates[0], rates[-1]):
        return ()
    which = "lowest" if lr == rates[0] else "highest"
    return (f"{name}: its best learning rate {lr:g} is the {which} of the grid; a wider grid may serve it better",)
