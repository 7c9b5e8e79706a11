"""Random wirings against `skipway.check`: how many are recovered exactly, by feature, and the seeds of the misses.

    python bench/random_wirings.py --count 10000 --seed 0 --workers 2
    python bench/random_wirings.py --seed 17 --count 1 --show      # one wiring: its plan, what is true, what was found
    python bench/random_wirings.py --single lanes                  # wirings that differ from a plain net in one thing, by a part of the name

Exit status 1 if one wiring is missed.
"""

import argparse
import collections
import multiprocessing
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

Outcome = tuple[int, tuple[str, ...], list[str]]        # seed, features, problems


def examine(seed: int) -> Outcome:
    """Builds the wiring of a seed and holds what is recovered against its truth."""
    import skipway
    from wirings import compare, random_wiring

    model, inputs, truth = random_wiring(seed)
    try:
        report = skipway.check(model, *inputs, expect=skipway.Expect(**truth.expect))
    except Exception as error:                          # a crash is a miss, told like one
        return seed, truth.features, [f"{type(error).__name__}: {error}"]
    return seed, truth.features, compare(truth, report.wiring, report.findings)


def quiet() -> None:
    """One thread a worker, no warnings: models are tiny."""
    import torch

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")


def outcomes(seeds: range, workers: int) -> Iterator[Outcome]:
    """Outcomes in order of seed."""
    if workers == 1:
        quiet()
        yield from map(examine, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(workers, initializer=quiet) as pool:
        yield from pool.imap(examine, seeds, chunksize=20)


def table(done: list[Outcome]) -> list[str]:
    """One line a feature: how many wirings have it, and how many of those were missed."""
    with_it: collections.Counter[str] = collections.Counter(f for _, features, _ in done for f in features)
    missed: collections.Counter[str] = collections.Counter(f for _, features, problems in done if problems for f in features)
    rows = [f"{'feature':<48} {'wirings':>8} {'missed':>7}"]
    return rows + [f"{f:<48} {with_it[f]:>8} {missed[f]:>7}" for f in sorted(with_it, key=lambda f: (-missed[f], f))]


def show(seed: int) -> None:
    """Prints a wiring's plan, its true sites, and what was found."""
    import skipway
    from wirings import random_wiring

    model, inputs, truth = random_wiring(seed)
    print(truth.text)
    print(f"\ninputs {[tuple(x.shape) for x in inputs]}, expect {truth.expect}, fault {truth.fault}")
    print(f"lanes {truth.lanes}, final norms {truth.final_norms}, inner joins {truth.inner}\n\ntrue sites")
    for site in truth.sites:
        print(f"  {site}")
    report = skipway.check(model, *inputs, expect=skipway.Expect(**truth.expect))
    print("\nfound")
    for stream in report.wiring.streams:
        print(f"  stream {stream.name!r} main {stream.main} lanes {stream.lanes} stem {stream.stem!r} final norm {stream.final_norm!r}")
        for s in stream.sites:
            kinds = "+".join(b.kind for b in s.branches)
            told = f"{s.module!r} {kinds} {s.placement} {s.norm} {s.shortcut} gain {s.gain} scale {s.scale} {s.branch_scale} parallel {s.parallel}"
            print(f"    {told}")
    for f in report.findings:
        print(f"  {f.severity} {f.code} at {f.where!r}: {f.message}")
    print()


def singles(part: str) -> int:
    """Examines the one-feature wirings whose names hold `part`; returns how many are missed."""
    import skipway
    from wirings import compare
    from wirings.single import singles as all_singles

    chosen = [(name, make) for name, make in all_singles() if part in name]
    missed = 0
    for name, make in chosen:
        model, inputs, truth = make()
        report = skipway.check(model, *inputs, expect=skipway.Expect(**truth.expect))
        problems = compare(truth, report.wiring, report.findings)
        missed += bool(problems)
        if problems:
            print(f"{name}: {'; '.join(problems[:3])}")
    print(f"{len(chosen) - missed} of {len(chosen)} one-feature wirings recovered exactly")
    return missed


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="print each wiring and what was found in it")
    parser.add_argument("--quick", action="store_true", help="200 wirings")
    parser.add_argument("--single", nargs="?", const="", metavar="PART", help="the one-feature wirings whose names hold PART, instead of random ones")
    options = parser.parse_args(argv)
    if options.single is not None:
        quiet()
        return int(singles(options.single) > 0)
    count = min(options.count, 200) if options.quick else options.count
    seeds, began = range(options.seed, options.seed + count), time.perf_counter()
    if options.show:
        quiet()
        for seed in seeds:
            show(seed)
    done = list(outcomes(seeds, 1 if options.show else options.workers))
    misses = [(seed, problems) for seed, _, problems in done if problems]
    if not options.show:
        print("\n".join(table(done)))
    for seed, problems in misses[:200]:
        print(f"seed {seed}: " + "; ".join(problems[:3]) + (f" (+{len(problems) - 3})" if len(problems) > 3 else ""))
    if len(misses) > 200:
        print(f"and {len(misses) - 200} more seeds: {' '.join(str(seed) for seed, _ in misses[200:])}")
    print(f"{count - len(misses)} of {count} wirings recovered exactly in {time.perf_counter() - began:.0f} s")
    return int(bool(misses))


if __name__ == "__main__":
    sys.exit(main())
