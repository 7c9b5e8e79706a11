"""Intervals, differences, correction, sequential levels and verdicts, against scipy, by simulation, and by what must not change them."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skipway.lab.stats import Design, compare, difference, interval, needed, tuned
from skipway.lab.stats.paired import holm
from skipway.lab.stats.sequential import nominal
from skipway.lab.stats.verdict import GUARD

VALUES = st.lists(st.floats(-10, 10).map(lambda v: round(v, 3)), min_size=6, max_size=20)


def table(values: "list[float | None]", lr: float = 1e-3) -> "dict[float, dict[int, float | None]]":
    return {lr: dict(enumerate(values))}


def test_the_interval_is_scipys() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    made = interval(values, 0.1)
    want = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    assert (made.mean, made.n) == (3.75, 4) and made.low == pytest.approx(want.low) and made.high == pytest.approx(want.high)
    assert interval([2.0]).low is None
    with pytest.raises(ValueError, match="got no values"):
        interval([])


def test_the_difference_is_the_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(0, 5, 12)
    own = base + rng.normal(0.3, 0.5, 12)                   # the pairs share most of their noise
    made = difference(list(own), list(base))
    assert made.p == pytest.approx(stats.ttest_rel(own, base).pvalue)
    assert made.p < 0.3 * stats.ttest_ind(own, base).pvalue         # unpaired, the shared noise would hide it
    assert made.low is not None and made.boot_low is not None and made.high is not None and made.boot_high is not None
    assert made.low == pytest.approx(made.boot_low, abs=0.15) and made.high == pytest.approx(made.boot_high, abs=0.15)
    assert made.effect == pytest.approx(abs(made.mean) / float(np.std(base, ddof=1)))


def test_constant_differences() -> None:
    same = difference([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert (same.p, same.mean, same.boot_low, same.needed) == (1.0, 0.0, 0.0, None)
    shifted = difference([2.0, 3.0, 4.0], [1.0, 2.0, 3.0])
    assert (shifted.p, shifted.low, shifted.high) == (0.0, 1.0, 1.0)


@pytest.mark.parametrize(("size", "want"), [(0.5, 34), (1.0, 10), (2.0, 5)])
def test_seeds_needed_are_those_of_the_books(size: float, want: int) -> None:
    """Paired t test, two-sided 5 %, power 80 %: 34 pairs for a standardised difference of 0.5, 10 for 1 (Cohen's tables), 5 for 2."""
    assert needed(size, 1.0) == want
    assert needed(0.0, 1.0) is None and needed(1e-9, 1.0) is None and needed(1.0, 0.0) == 2


def test_seeds_needed_by_simulation() -> None:
    n = needed(0.8, 1.0)
    assert n is not None
    draws = np.random.default_rng(1).normal(0.8, 1.0, (4000, n))
    found = (stats.ttest_1samp(draws, 0, axis=1).pvalue < 0.05).mean()
    fewer = (stats.ttest_1samp(draws[:, :n - 2], 0, axis=1).pvalue < 0.05).mean()
    assert 0.78 < found < 0.87 and fewer < 0.79


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0] and holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_lowers_a_p_value_nor_the_order(ps: "list[float]") -> None:
    made = holm(ps)
    assert all(p <= q <= min(1.0, len(ps) * p) + 1e-12 for p, q in zip(ps, made))
    assert [made[i] for i in sorted(range(len(ps)), key=lambda i: ps[i])] == sorted(made)


def test_the_sequential_level_holds_the_rate() -> None:
    level = nominal(0.05, 3, 12)
    assert 0.005 < level < 0.03                             # ten looks at 5 % each would err far more often
    noise = np.random.default_rng(99).standard_normal((4000, 12))
    looks = np.stack([stats.ttest_1samp(noise[:, :n], 0, axis=1).pvalue for n in range(3, 13)])
    assert (looks.min(0) < level).mean() < 0.05 + 2 * math.sqrt(0.05 * 0.95 / 4000)
    assert (looks.min(0) < 0.05).mean() > 0.12              # the fault that the level is there for
    assert nominal(0.05, 3, 12, 4) < level / 2 and nominal(0.05, 3, 3) == pytest.approx(0.05, abs=0.003)
    with pytest.raises(ValueError, match="want 2 <= first <= last"):
        nominal(0.05, 1, 3)


def test_tuned_takes_the_fewest_divergences_then_the_lowest_mean() -> None:
    assert tuned({1e-3: {0: 2.0, 1: 2.0}, 3e-3: {0: 1.0, 1: 1.5}, 1e-2: {0: 0.1, 1: None}}) == 3e-3
    assert tuned({}) is None and tuned({1e-2: {0: None}}) == 1e-2


def test_better_and_worse() -> None:
    base, low = [2.0, 2.1, 1.9, 2.05], [1.0, 1.1, 0.95, 1.02]
    better = compare({"a": table(base), "b": table(low)}, "a")[0]
    assert better.verdict == "better" and "b ended at a lower held-out loss than a: 1.018 against 2.013" in better.sentence
    assert "4 paired seeds" in better.sentence and "times the seed noise of a" in better.sentence
    assert compare({"a": table(low), "b": table(base)}, "a")[0].verdict == "worse"


def test_no_difference_names_the_seeds_that_it_would_take() -> None:
    made = compare({"a": table([2.0, 2.1, 1.9]), "b": table([2.02, 2.03, 1.98])}, "a")[0]
    assert made.verdict == "no difference shown" and made.difference is not None
    assert f"would need about {made.difference.needed} seeds" in made.sentence


def test_one_seed_gives_no_verdict() -> None:
    made = compare({"a": table([2.0]), "b": table([0.1])}, "a")[0]
    assert made.verdict == "no difference shown" and "one pair shows no spread" in made.sentence
    assert compare({"a": table([2.0]), "b": {}}, "a")[0].sentence.endswith("there is nothing to compare.")


def test_diverged() -> None:
    made = compare({"a": table([1.0, 1.1, 1.2]), "b": table([None, 0.9, None])}, "a")[0]
    assert (made.verdict, made.diverged) == ("diverged", 2)
    assert made.sentence == "b diverged in 2 of 3 seeds even at its best learning rate 0.001; a trained in all of them."


def test_a_baseline_that_diverges_is_beaten_only_with_enough_seeds() -> None:
    """Equal chances of diverging give all against none with at most 2 / 4^n: 0.031 with 3 seeds, 0.125 with 2; Holm over two needs 4."""
    def verdict(n: int, variants: int = 1) -> str:
        return compare({"a": table([None] * n), **{f"b{k}": table([1.0] * n) for k in range(variants)}}, "a")[0].verdict
    assert [verdict(2), verdict(3), verdict(3, 2), verdict(4, 2)] == ["no difference shown", "better", "no difference shown", "better"]
    part = compare({"a": table([None, 1.0, None]), "b": table([1.0, 1.0, 1.0])}, "a")[0]
    assert part.verdict == "no difference shown" and "a diverged in 2 of 3 seeds" in part.sentence


def test_a_rate_at_the_edge_of_the_grid_is_told() -> None:
    rows = {1e-4: {0: 3.0, 1: 3.0}, 1e-3: {0: 2.0, 1: 2.1}, 1e-2: {0: 1.0, 1: 1.1}}
    notes = compare({"a": {1e-3: {0: 1.0, 1: 1.2}}, "b": rows}, "a")[0].notes
    assert any("b: its best learning rate 0.01 is the highest of the grid" in n for n in notes) and not any(n.startswith("a:") for n in notes)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from([0.0, 1.0, -1.0, 1e-12, 1e6]), min_size=2, max_size=7))
def test_every_number_of_a_difference_is_finite(values: "list[float]") -> None:
    made = difference(values, [0.0] * len(values), resamples=99)
    numbers = [v for v in (made.mean, made.sd, made.low, made.high, made.boot_low, made.boot_high, made.p, made.noise, made.effect) if v is not None]
    assert all(math.isfinite(v) for v in numbers) and made.boot_low is not None and made.boot_high is not None and made.boot_low <= made.boot_high
    assert 0 <= made.p <= 1 and made.effect is None         # a baseline without noise has nothing to stand beside


@settings(deadline=None, max_examples=40)
@given(VALUES, st.integers(0, 2 ** 32), st.floats(-5, 5), st.floats(0.01, 100))
def test_what_must_not_change_a_verdict(base: "list[float]", seed: int, shift: float, scale: float) -> None:
    rng = random.Random(seed)
    own = [v + rng.gauss(0.3, 0.5) for v in base]

    def verdict(a: "list[float]", b: "list[float]") -> str:
        return compare({"a": table(list(a)), "b": table(list(b))}, "a", resamples=0)[0].verdict
    said = verdict(base, own)
    assert verdict([scale * v + shift for v in base], [scale * v + shift for v in own]) == said
    order = rng.sample(range(len(base)), len(base))
    assert verdict([base[i] for i in order], [own[i] for i in order]) == said
    opposite = {"better": "worse", "worse": "better"}
    assert verdict(own, base) == opposite.get(said, said)


@pytest.mark.parametrize("variants", [2, 4])
def test_a_against_a_and_a_planted_effect(variants: int) -> None:
    """200 small studies each; bench/verdicts.py does 2,000 of many kinds."""
    rng, false, found = np.random.default_rng(variants), 0, 0
    for _ in range(200):
        shared = rng.normal(0, 0.7, 10)
        rows = {f"v{k}": table(list(2 + 0.01 * (shared + rng.normal(0, 0.7, 10)))) for k in range(variants)}
        false += any(c.verdict != "no difference shown" for c in compare(rows, "v0", resamples=0))
        rows["v1"] = {1e-3: {s: v - 0.02 for s, v in rows["v1"][1e-3].items() if v is not None}}
        found += compare(rows, "v0", resamples=0)[0].verdict == "better"
    assert false / 200 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 200) and found / 200 >= 0.8


def test_the_level_is_guarded_so_that_noise_that_is_not_normal_keeps_the_rate() -> None:
    """100,000 comparisons of three and five pairs without a difference, of noises of light, normal and heavy tails."""
    level = compare({"a": table([1.0, 2.0, 3.0]), "b": table([2.0, 1.0, 3.0])}, "a", resamples=0)[0].level
    assert level == GUARD * 0.05
    rng, found, unguarded = np.random.default_rng(3), {}, {}
    draws = {"light": lambda s: rng.uniform(-1, 1, s), "normal": rng.standard_normal, "heavy": lambda s: rng.standard_t(5, s),
             "two": lambda s: rng.integers(0, 2, s) + 0.01 * rng.standard_normal(s)}
    for name, draw in draws.items():
        for n in (3, 5):
            p = stats.ttest_rel(draw((100_000, n)), draw((100_000, n)), axis=1).pvalue
            found[name, n], unguarded[name, n] = float((p < level).mean()), float((p < 0.05).mean())
    assert max(found.values()) < 0.045 and unguarded["light", 5] > 0.05, (found, unguarded)


def test_a_sequential_design_stops_when_decided() -> None:
    design = Design(first=3, last=10)
    made = compare({"a": table([2.0, 2.01, 1.99]), "b": table([1.0, 1.02, 0.99])}, "a", design)[0]
    assert made.decided and made.verdict == "better" and made.level == nominal(GUARD * 0.05, 3, 10) and "of this look" in made.sentence
    early = compare({"a": table([2.0, 2.01]), "b": table([1.0, 1.01])}, "a", design)[0]
    assert not early.decided and early.verdict == "no difference shown"
    assert not compare({"a": table([2.0, 2.2, 1.9]), "b": table([2.1, 1.9, 2.0])}, "a", design)[0].decided
