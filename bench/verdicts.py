"""Error rate and power of the verdicts of `skipway compare`: simulated studies through the real statistics code.

    python bench/verdicts.py [--studies 2000] [--quick] [--only TEXT] [--json FILE]

A study has a baseline and some variants, a grid of learning rates, paired seeds that share a part of their noise. A against A: no variant
differs, so any verdict but "no difference shown" is false. Planted: one variant is better by twice the seed noise. Status 1 where a bar is missed.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from skipway.lab.stats import Design, compare

RATES = (3e-4, 1e-3, 3e-3)
NOISES = ("normal", "skewed", "heavy")


def noise(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Noise of standard deviation 1."""
    if kind == "skewed":
        return rng.exponential(1.0, shape) - 1.0
    if kind == "heavy":
        return rng.standard_t(5, shape) / np.sqrt(5 / 3)
    return rng.standard_normal(shape)


APART, TIED = (3.0, 0.0, 2.1), (0.0, 0.0, 0.0)      # of the three rates, in units of the noise: one is right, or it is noise that chooses


def tables(rng: np.random.Generator, variants: int, seeds: int, kind: str, shift: float, rates: tuple = APART, shared: float = 0.5) -> dict:
    """Final losses of a study; `shared` is the part of the noise's variance that the seed alone decides."""
    common = noise(rng, kind, (seeds,)) * shared ** 0.5
    out = {}
    for v in range(variants):
        own = noise(rng, kind, (len(RATES), seeds)) * (1 - shared) ** 0.5 + common
        out[f"v{v}"] = {lr: {s: 2.0 + 0.01 * (rates[i] + own[i, s] - (shift if v == variants - 1 else 0.0)) for s in range(seeds)}
                        for i, lr in enumerate(RATES)}
    return out


def cut(table: dict, seeds: int) -> dict:
    return {name: {lr: {s: v for s, v in row.items() if s < seeds} for lr, row in rows.items()} for name, rows in table.items()}


def fixed(rng: np.random.Generator, variants: int, seeds: int, kind: str, shift: float, rates: tuple = APART) -> list[str]:
    made = compare(tables(rng, variants, seeds, kind, shift, rates), "v0", Design(first=seeds, last=seeds), resamples=99)
    return [c.verdict for c in made]


def until_decided(rng: np.random.Generator, variants: int, first: int, last: int, kind: str, shift: float) -> tuple[list[str], int]:
    """The verdicts at which each comparison stopped, and the seeds used."""
    whole, rates, settled = tables(rng, variants, last, kind, shift), {}, {}
    for n in range(first, last + 1):
        found = compare(cut(whole, n), "v0", Design(first=first, last=last), rates, resamples=0)
        for c in found:
            rates.setdefault(c.variant, c.lr)
            rates.setdefault(c.baseline, c.baseline_lr)
            if c.decided:
                settled.setdefault(c.variant, c.verdict)
        if len(settled) == len(found):
            break
    return [settled.get(c.variant, c.verdict) for c in found], n


def wrong(verdicts: list[str]) -> bool:
    """Whether a study in which nothing differs has a verdict."""
    return any(v != "no difference shown" for v in verdicts)


def rows(kind: str) -> Iterator[tuple[str, int, Callable[[np.random.Generator], tuple[bool, int]], bool]]:
    """(name, seed, one study, whether it counts false verdicts) of every row; a study gives whether it counts and the seeds it used."""
    for variants, seeds in ((2, 3), (4, 5), (6, 10)):
        yield (f"A-A {variants - 1} variants, {seeds} seeds", 7,
               lambda rng, v=variants, n=seeds: (wrong(fixed(rng, v, n, kind, 0.0)), n), True)
    yield "A-A 1 variants, 3 seeds, rates that tie", 7, lambda rng: (wrong(fixed(rng, 2, 3, kind, 0.0, TIED)), 3), True
    for variants, first, last in ((2, 3, 12), (4, 5, 20)):
        def apart(rng: np.random.Generator, v: int = variants, a: int = first, b: int = last) -> tuple[bool, int]:
            verdicts, used = until_decided(rng, v, a, b, kind, 0.0)
            return wrong(verdicts), used
        yield f"A-A {variants - 1} variants, until decided, {first}-{last}", 8, apart, True
    for variants in (2, 4):
        yield (f"planted 2 x noise, {variants - 1} variants, 10 seeds", 9,
               lambda rng, v=variants: (fixed(rng, v, 10, kind, 2.0)[-1] == "better", 10), False)

    def planted(rng: np.random.Generator) -> tuple[bool, int]:
        verdicts, used = until_decided(rng, 2, 3, 12, kind, 2.0)
        return verdicts[-1] == "better", used
    yield "planted 2 x noise, until decided, 3-12", 10, planted, False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="300 studies a row, with two standard errors of that allowed")
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    parser.add_argument("--json")
    options = parser.parse_args()
    studies = 300 if options.quick else options.studies
    bar = 0.05 + (2 * (0.05 * 0.95 / studies) ** 0.5 if options.quick else 0.0)
    found: list[dict] = []
    print(f"{'study':<44}{'noise':<9}{'measured':>10}{'seeds':>7}  bar")
    for kind in NOISES:
        for name, seed, study, false in rows(kind):
            if options.only in name:
                found.append(measured(name, kind, seed, study, false, studies, bar))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(found, out, indent=1)
    return 1 if any(not row["held"] for row in found) else 0


def measured(name: str, kind: str, seed: int, study: Callable, false: bool, studies: int, bar: float) -> dict:
    start, rng = time.perf_counter(), np.random.default_rng(seed)
    ends = [study(rng) for _ in range(studies)]
    share, used = sum(hit for hit, _ in ends) / studies, sum(n for _, n in ends) / studies
    held = share <= bar if false else share >= 0.8
    wanted = f"<= {bar:.4f}" if false else ">= 0.80"
    print(f"{name:<44}{kind:<9}{share:>10.4f}{used:>7.1f}  {wanted}  {'ok' if held else 'MISSED'}", flush=True)
    return {"study": name, "noise": kind, "measured": share, "seeds": used, "bar": wanted, "held": held, "seconds": time.perf_counter() - start}


if __name__ == "__main__":
    sys.exit(main())
