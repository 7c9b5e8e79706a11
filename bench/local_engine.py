"""The local engine against a sequential loop over the same trials with torch's default threads, and its overhead over a bare training loop.

    python bench/local_engine.py [--quick] [--json FILE]

Throughput: both sides run the eighteen trials of `skipway compare copy`, in turn; whole wall times, with the start of the workers and the report (bar
on two cores or more: 1.4 times). Overhead: a trial as a worker runs it (recorded, with checkpoints and reports of its steps) against a plain loop of
batch, forward, backward, clip, step, and the same held-out evaluations; processor time of a thread each, which take turns step by step, so that what
else the machine does slows both alike; the median of the ratios (bar: 5 %). What the evaluations themselves add to the bare steps is printed beside
it. Status 1 where a bar is missed. Throughput needs a machine that does nothing else.
"""

import argparse
import io
import json
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import torch

from skipway import lab
from skipway.lab import _trial, _worker, tasks
from skipway.lab._machine import settings
from skipway.lab._model import build
from skipway.lab._optimizer import Optimizer
from skipway.lab.engines import Job
from skipway.lab.records import Arm, Trial


class Turns:
    """Threads that run one at a time, in turn; each has its processor seconds in `spent`."""

    def __init__(self, sides: "dict[str, Callable[[Callable[[], None]], None]]") -> None:
        """sides: functions that call what they get wherever another may go on."""
        self.order, self.free, self.spent = list(sides), threading.Condition(), {}
        self.error: BaseException | None = None
        threads = [threading.Thread(target=self._side, args=(name, work)) for name, work in sides.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.error is not None:
            raise self.error

    def _side(self, name: str, work: "Callable[[Callable[[], None]], None]") -> None:
        self._wait(name)
        settings(1)                         # small numbers are flushed thread by thread
        start = time.thread_time()
        try:
            work(lambda: self._next(name))
        except BaseException as error:
            self.error = error
        self.spent[name] = time.thread_time() - start
        with self.free:
            self.order.remove(name)
            self.free.notify_all()

    def _wait(self, name: str) -> None:
        with self.free:
            self.free.wait_for(lambda: self.order[0] == name)

    def _next(self, name: str) -> None:
        with self.free:
            self.order.append(self.order.pop(0))
            self.free.notify_all()
        self._wait(name)


def bare(arm: Arm, trial: Trial, task: tasks.Task, evaluations: bool, turn: "Callable[[], None]") -> None:
    """A training loop without records."""
    model = build(arm, task, trial.seed)
    optimizer = Optimizer(model, arm, trial.lr)
    held = [task.batch("held_out", 0, k, arm.batch) for k in range(arm.held_out)]
    losses, curve = [], []
    for step in range(arm.steps):
        turn()
        batch = task.batch("train", trial.seed, step, arm.batch)
        loss = task.loss(model(batch.inputs), batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), arm.clip or float("inf"))
        optimizer.step(step)
        losses.append(loss.item())
        if evaluations and ((step + 1) % arm.evaluate == 0 or step + 1 == arm.steps):
            model.eval()
            with torch.no_grad():
                outs = [model(b.inputs) for b in held]
                curve.append([(task.loss(out, b).item(), task.score(out, b)) for out, b in zip(outs, held)])
            model.train()


def ours(arm: Arm, trial: Trial, task: tasks.Task, folder: str, turn: "Callable[[], None]") -> None:
    """The same in a worker: what it says goes nowhere."""
    job = Job(arm, trial, str(pathlib.Path(folder) / f"{trial.id}.safetensors"))
    last = _worker._worked(job, _Orders(turn), io.StringIO())
    assert last["kind"] == "ended" and last["outcome"]["state"] == "finished", last


class _Orders:
    """Nobody stops it; it is asked before every step."""

    def __init__(self, turn: "Callable[[], None]") -> None:
        self.stop, self.turn = self, turn

    def is_set(self) -> bool:
        self.turn()
        return False


def throughput(made: "lab.Plan", rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of the engine, and of the loop with default threads."""
    task, arms, cores = tasks.build("copy"), {a.name: a for a in made.arms}, os.cpu_count() or 1
    engine, loop = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as root:
            start = time.perf_counter()
            lab.run(made, pathlib.Path(root) / "s")
            engine.append(time.perf_counter() - start)
        torch.set_num_threads(cores)
        start = time.perf_counter()
        for trial in made.trials:
            _trial.run(arms[trial.arm], trial, task)
        loop.append(time.perf_counter() - start)
    return engine, loop


def overhead(arm: Arm, pairs: int) -> list[tuple[float, float, float]]:
    """Processor seconds of bare steps, of those with evaluations, and of a trial; the first round warms up and is left out."""
    settings(1)
    task, found = tasks.build("copy"), []
    with tempfile.TemporaryDirectory() as root:
        for k in range(pairs + 1):
            trial = Trial(arm.name, 1e-3, k)
            done = Turns({"steps": lambda turn, t=trial: bare(arm, t, task, False, turn),
                          "bare": lambda turn, t=trial: bare(arm, t, task, True, turn),
                          "ours": lambda turn, t=trial: ours(arm, t, task, root, turn)})
            found.append((done.spent["steps"], done.spent["bare"], done.spent["ours"]))
    return found[1:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=("throughput", "overhead"))
    parser.add_argument("--json")
    options = parser.parse_args()
    steps, rounds, pairs = (40, 1, 2) if options.quick else (150, 2, 7)
    study = lab.Study(task="copy", variants=["none:normed=true", "pre_norm"], seeds=1 if options.quick else 3,
                      lr=[1e-3, 3e-3] if options.quick else [1e-3, 3e-3, 1e-2], steps=steps, probes=0)
    made, cores, rows, held = lab.plan(study, os.cpu_count() or 1), os.cpu_count() or 1, {}, True
    if options.only != "overhead":
        engine, loop = throughput(made, rounds)
        ratio = statistics.median(s / e for e, s in zip(engine, loop))
        held = held and ratio >= 1.4
        rows |= {"engine": engine, "loop": loop, "ratio": ratio}
        print(f"{len(made.trials)} trials of {steps} steps, {cores} cores: engine {statistics.median(engine):.1f} s, sequential loop "
              f"{statistics.median(loop):.1f} s: {ratio:.2f} times the throughput (bar 1.4)", flush=True)
    if options.only != "throughput":
        found = overhead(next(a for a in made.arms if a.name == "pre_norm"), pairs)
        more = statistics.median(o / e for _, e, o in found) - 1
        also = statistics.median(e / b for b, e, _ in found) - 1
        held = held and more <= 0.05
        rows |= {"times": found, "overhead": more, "evaluations": also}
        print(f"one trial {statistics.median(o for *_, o in found):.2f} s, a bare loop that evaluates alike "
              f"{statistics.median(e for _, e, _ in found):.2f} s: {more:+.1%} (bar +5 %); the evaluations add {also:+.1%} to the steps")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({**rows, "cores": cores, "steps": steps}, indent=1))
    return 0 if options.quick or held else 1


if __name__ == "__main__":
    sys.exit(main())
