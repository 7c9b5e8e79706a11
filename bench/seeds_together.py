"""Engine together against engine local: the seeds of one variant as one stack in a process, against the same trials one by one.

    python bench/seeds_together.py [--tasks copy,mlp_depth,digits] [--seeds 3,5,10] [--steps 100] [--studies] [--quick] [--json FILE]

Both sides run whole trials of a task's default arm as a worker does, with one thread: steps, held-out evaluations, looks at depth, records. Processor
time of the steps alone and of whole trials, in turn, the fastest of the rounds, since what else a machine does only adds; and the largest relative
difference of a final loss. With --studies: wall time of whole studies of two variants and three rates, with as many workers as cores. No bar; the
tables of docs/decisions/0011, from which `together` of a task says whether `skipway compare` suggests the engine.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace

from skipway import lab
from skipway.lab import _together, _trial, tasks
from skipway.lab._machine import settings
from skipway.lab.records import Arm, Outcome, Trial

RATE = 1e-3


def apart(arm: Arm, trials: list[Trial], task: tasks.Task) -> dict[int, Outcome]:
    """As the local engine's workers run them."""
    return {trial.seed: _trial.run(arm, trial, task) for trial in trials}       # type: ignore[misc]


def stacked(arm: Arm, trials: list[Trial], task: tasks.Task) -> dict[int, Outcome]:
    """As a worker of the engine together runs them."""
    return _together.run(arm, trials, task)                                     # type: ignore[return-value]


def spent(work: Callable[[], dict[int, Outcome]]) -> tuple[float, dict[int, Outcome]]:
    """Processor seconds, and what came of it."""
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def measured(name: str, seeds: int, steps: int, rounds: int) -> dict:
    """Seconds of both sides, whole trials and steps alone."""
    task = tasks.build(name)
    usual = lab.plan(lab.Study(task=name, variants=["pre_norm"], lr=RATE)).arms[0].evaluate         # as often as in a study of the usual length
    made = lab.plan(lab.Study(task=name, variants=["pre_norm"], seeds=seeds, lr=RATE, steps=steps, probes=1, evaluate=min(usual, steps)))
    arm, trials = made.arms[0], list(made.trials)
    bare = lab.plan(lab.Study(task=name, variants=["pre_norm"], seeds=seeds, lr=RATE, steps=steps, probes=0, held_out=1)).arms[0]
    bare = replace(bare, evaluate=bare.steps)
    sides = {"apart": apart, "together": stacked}
    found: dict[str, list[float]] = {f"{side} {what}": [] for side in sides for what in ("trials", "steps")}
    ends = {}
    for _ in range(rounds):
        for side, work in sides.items():
            seconds, ends[side] = spent(lambda work=work: work(arm, trials, task))
            found[f"{side} trials"].append(seconds)
            found[f"{side} steps"].append(spent(lambda work=work: work(bare, trials, task))[0])
    fast = {key: min(times) for key, times in found.items()}
    off = max(abs(ends["together"][s].final / ends["apart"][s].final - 1) for s in ends["apart"])           # type: ignore[operator]
    return {"task": name, "seeds": seeds, **fast, "trials": fast["apart trials"] / fast["together trials"],
            "steps": fast["apart steps"] / fast["together steps"], "off": off}


def studies(name: str, seeds: int, steps: int) -> dict:
    """Wall seconds of a study on either engine."""
    made = lab.plan(lab.Study(task=name, seeds=seeds, steps=steps))
    seconds = {}
    for engine in ("local", "together"):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            lab.run(made, pathlib.Path(folder) / "s", engine=engine)
            seconds[engine] = time.perf_counter() - start
    return {"task": name, "seeds": seeds, **seconds, "ratio": seconds["local"] / seconds["together"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="copy,mlp_depth,digits")
    parser.add_argument("--seeds", default="3,5,10")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--studies", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    settings(1)
    warnings.filterwarnings("ignore", message=".*batching rule.*")
    rows = []
    steps = 20 if options.quick else options.steps
    cases = [(name, seeds) for name in options.tasks.split(",") for seeds in map(int, options.seeds.split(","))]
    if options.studies:
        print(f"{'task':<12}{'seeds':>6}{'local s':>10}{'together s':>12}{'ratio':>8}")
    else:
        print(f"{'task':<12}{'seeds':>6}{'steps':>8}{'trials':>8}  times as fast; largest relative difference of a final loss")
    for name, seeds in cases:
        if options.studies:
            row = studies(name, seeds, steps)
            print(f"{name:<12}{seeds:>6}{row['local']:>10.1f}{row['together']:>12.1f}{row['ratio']:>8.2f}", flush=True)
        else:
            row = measured(name, seeds, steps, 1 if options.quick else 2)
            print(f"{name:<12}{seeds:>6}{row['steps']:>8.2f}{row['trials']:>8.2f}  {row['off']:.1e}", flush=True)
        rows.append(row)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
