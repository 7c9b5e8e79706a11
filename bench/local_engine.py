"""The local engine against a sequential loop over the same trials with torch's default threads, and its overhead over a bare training loop.

    python bench/local_engine.py [--quick] [--json FILE]

Both sides run the same twelve trials of the copy task in turn, three times; times are whole wall times. Bars: 1.4 times the throughput (on two cores
or more), and at most 5 % more time in one worker than a loop of nothing but batch, forward, backward, clip and step. Status 1 where one is missed.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch

from skipway import lab
from skipway.lab import _trial, tasks
from skipway.lab._machine import settings
from skipway.lab._model import build
from skipway.lab._optimizer import Optimizer
from skipway.lab.records import Arm, Trial


def bare(arm: Arm, trial: Trial, task: tasks.Task) -> float:
    """Seconds of a training loop without records."""
    model = build(arm, task, trial.seed)
    optimizer = Optimizer(model, arm, trial.lr)
    start = time.perf_counter()
    for step in range(arm.steps):
        batch = task.batch("train", trial.seed, step, arm.batch)
        loss = task.loss(model(batch.inputs), batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), arm.clip or float("inf"))
        optimizer.step(step)
    return time.perf_counter() - start


def ours(arm: Arm, trial: Trial, task: tasks.Task, folder: str) -> float:
    """Seconds of the same steps in a trial that is recorded and kept."""
    start = time.perf_counter()
    out = _trial.run(arm, trial, task, pathlib.Path(folder) / f"{trial.id}.safetensors")
    assert out is not None and out.state == "finished"
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    steps, rounds = (60, 1) if options.quick else (200, 3)
    study = lab.Study(task="copy", variants=["none:normed=true", "pre_norm"], seeds=1 if options.quick else 3, lr=[1e-3, 3e-3], steps=steps, probes=0)
    made = lab.plan(study, os.cpu_count() or 1)
    task, arms = tasks.build("copy"), {a.name: a for a in made.arms}
    engine, loop = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as root:
            start = time.perf_counter()
            lab.run(made, pathlib.Path(root) / "s")
            engine.append(time.perf_counter() - start)
            torch.set_num_threads(os.cpu_count() or 1)
            start = time.perf_counter()
            for trial in made.trials:
                _trial.run(arms[trial.arm], trial, task)
            loop.append(time.perf_counter() - start)
    settings(1)
    plain, kept = [], []
    arm = arms["pre_norm"]
    with tempfile.TemporaryDirectory() as root:
        for k in range(2 * rounds + 1):                     # the first pair warms up
            pair = bare(arm, Trial(arm.name, 1e-3, k), task), ours(arm, Trial(arm.name, 1e-3, k), task, root)
            if k:
                plain.append(pair[0])
                kept.append(pair[1])
    ratio = statistics.median(s / e for e, s in zip(engine, loop))
    more = statistics.median(k / p for p, k in zip(plain, kept)) - 1
    cores = os.cpu_count() or 1
    print(f"{len(made.trials)} trials of {steps} steps, {cores} cores")
    print(f"engine {statistics.median(engine):.1f} s, sequential loop {statistics.median(loop):.1f} s: {ratio:.2f} times the throughput (bar 1.4)")
    print(f"one trial {statistics.median(kept):.2f} s, bare loop {statistics.median(plain):.2f} s: {more:+.1%} (bar +5 %, evaluations included)")
    if options.json:
        rows = {"engine": engine, "loop": loop, "ratio": ratio, "bare": plain, "trial": kept, "overhead": more, "cores": cores, "steps": steps}
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1))
    return 0 if (options.quick or (ratio >= 1.4 and more <= 0.05)) else 1


if __name__ == "__main__":
    sys.exit(main())
