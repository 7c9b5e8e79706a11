"""One run: the training loop, what it records, where it stops and where it goes on."""

import contextlib
import math
import pathlib
import random
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from skipway.lab import _checkpoint
from skipway.lab._machine import peak, reset_peak, versions
from skipway.lab._measure import depths, evaluating, readout
from skipway.lab._model import build, model_dtype
from skipway.lab._optimizer import Optimizer
from skipway.lab.records import Arm, Depth, Outcome, Point, Readout, Trial, finite, record
from skipway.lab.tasks import Batch, Task
from skipway.lab.tasks._base import HELD_OUT, TRAIN, seed_of
from skipway.nn import Stack

DIVERGED = 10.0                 # a loss above so many times the larger of the first loss and a blind guess's is a divergence
LATEST = 60.0                   # seconds after which a checkpoint is written, however many steps they were
Tell = Callable[[int, float], None]


def run(arm: Arm, trial: Trial, task: Task, checkpoint: pathlib.Path | None = None, tell: Tell = lambda step, loss: None,
        stop: Callable[[], bool] = lambda: False) -> Outcome | None:
    """Trains to the end, or until `stop` says so between two steps: then the checkpoint is written and None is given.

    A trial that stops and goes on records the same numbers, to the last bit, as one that does not (on the CPU, with one thread).
    tell: called with the steps done and the last loss. Raises StoreError for a damaged checkpoint, OSError where the disk is full.
    """
    return _Run(arm, trial, task, checkpoint).run(tell, stop)


class _Run:
    def __init__(self, arm: Arm, trial: Trial, task: Task, checkpoint: pathlib.Path | None) -> None:
        self.arm, self.trial, self.task, self.path = arm, trial, task, checkpoint
        self.start, self.saved = time.perf_counter(), time.monotonic()
        reset_peak(arm.device)
        self.model = build(arm, task, trial.seed)
        number = seed_of("run", trial.seed)                 # of what the model draws while it trains, such as dropout
        torch.manual_seed(number)
        random.seed(number)
        np.random.seed(number % 2 ** 32)
        self.optimizer = Optimizer(self.model, arm, trial.lr)
        self.dtype = model_dtype(self.model)
        self.points: list[Point] = []
        self.depths: list[Depth] = []
        self.readouts: list[Readout] = []
        self.notes: list[str] = []
        self.step, self.resumed, self.probed = 0, 0, -1
        self.losses: list[float] = []                       # since the last point
        self.gradients: list[float] = []
        self.first: float | None = None
        self.seconds = self.before = 0.0
        self.held = [self._on_device(task.batch(HELD_OUT, 0, k, arm.batch)) for k in range(arm.held_out)]
        if checkpoint is not None and checkpoint.exists():
            self._go_on(_checkpoint.read(checkpoint, self.model, self.optimizer))

    def run(self, tell: Tell, stop: Callable[[], bool]) -> Outcome | None:
        self.model.train()
        while self.step < self.arm.steps:
            self._probe()
            if stop():
                self._save()
                return None
            loss = self._train()
            if self.first is None:
                self.first = loss
            tell(self.step, loss)
            if not loss <= DIVERGED * max(self.first, self.task.chance()):      # also where it is not a number
                return self._diverged(loss)
            if self.step % self.arm.evaluate == 0 or self.step == self.arm.steps:
                held = self._evaluate()
                if not math.isfinite(held):
                    return self._diverged(held)
            if (self.step % self.arm.checkpoint == 0 or time.monotonic() - self.saved > LATEST) and self.step < self.arm.steps:
                self._save()
        self._probe()
        return self._outcome("finished")

    def _train(self) -> float:
        """One step. The rate that is recorded is the one it was made with."""
        start = time.perf_counter()
        batch = self._on_device(self.task.batch(TRAIN, self.trial.seed, self.step, self.arm.batch))
        with self._precision():
            out = self.model(batch.inputs)
        loss = self.task.loss(out, batch)
        self.optimizer.zero_grad()
        loss.backward()
        bound = self.arm.clip if self.arm.clip is not None else math.inf
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), bound)
        self.rate = self.trial.lr * self.optimizer.step(self.step)
        for module in self.model.modules():
            if isinstance(module, Stack):
                module.advance(1)                           # schemes that change over training
        self.step += 1
        value = float(loss.detach())
        self.losses.append(value)
        self.gradients.append(float(norm))
        self.seconds += time.perf_counter() - start
        return value

    def _evaluate(self) -> float:
        losses, scores = [], []
        with evaluating(self.model), torch.no_grad(), self._precision():
            for batch in self.held:
                out = self.model(batch.inputs)
                losses.append(float(self.task.loss(out, batch)))
                scores.append(self.task.score(out, batch))
        held = sum(losses) / len(losses)
        self._train_point()
        self.points.append(Point(HELD_OUT, self.step, finite(held), finite(sum(scores) / len(scores))))
        return held

    def _train_point(self) -> None:
        mean = sum(self.losses) / len(self.losses)
        self.points.append(Point(TRAIN, self.step, finite(mean), None, self.rate, finite(sum(self.gradients) / len(self.gradients))))
        self.losses, self.gradients = [], []

    def _probe(self) -> None:
        """Measures depth where this step is one of those chosen, once."""
        if self.step not in self.arm.probes or self.probed == self.step:
            return
        self.probed = self.step
        rows, note = depths(self.model, self.task, self.held[0], self.step)
        self.depths += rows
        self.notes += [note] if note and note not in self.notes else []
        if self.step in (min(self.arm.probes), max(self.arm.probes)):
            found = readout(self.model, self.task, self.held, self.step)
            self.readouts += [found] if found is not None else []

    def _diverged(self, loss: float) -> Outcome:
        if self.losses:
            self._train_point()
        said = "the loss is not finite" if not math.isfinite(loss) else f"the loss is {loss:.3g}, over {DIVERGED:g} times what it began with"
        return self._outcome("diverged", f"{said} at step {self.step}")

    def _outcome(self, state: str, reason: str = "") -> Outcome:
        last = next((p for p in reversed(self.points) if p.split == HELD_OUT), None) if state == "finished" else None
        tokens = self.step * self.arm.batch * self.task.length
        return Outcome(
            state, self.step, reason, last.loss if last else None, last.score if last else None, tuple(self.points), tuple(self.depths),
            tuple(self.readouts), self.seconds, self.before + time.perf_counter() - self.start, tokens / self.seconds if self.seconds else None,
            peak(self.arm.device), self.resumed, versions(self.arm.device), tuple(self.notes))

    def _save(self) -> None:
        if self.path is None:
            return
        self.saved = time.monotonic()
        _checkpoint.write(self.path, self.model, self.optimizer, {
            "trial": asdict(self.trial), "step": self.step, "probed": self.probed, "first": self.first, "losses": self.losses,
            "gradients": self.gradients, "seconds": self.seconds, "wall": self.before + time.perf_counter() - self.start, "resumed": self.resumed,
            "notes": self.notes, "points": [asdict(p) for p in self.points], "depths": [asdict(d) for d in self.depths],
            "readouts": [asdict(r) for r in self.readouts]})

    def _go_on(self, kept: dict[str, Any]) -> None:
        self.step, self.probed, self.first = kept["step"], kept["probed"], kept["first"]
        self.losses, self.gradients, self.notes = kept["losses"], kept["gradients"], kept["notes"]
        self.seconds, self.before, self.resumed = kept["seconds"], kept["wall"], kept["resumed"] + 1
        self.points = [record(Point, p) for p in kept["points"]]
        self.depths = [record(Depth, d) for d in kept["depths"]]
        self.readouts = [record(Readout, r) for r in kept["readouts"]]

    def _precision(self) -> Any:
        return torch.autocast(self.arm.device.partition(":")[0], torch.bfloat16) if self.arm.dtype == "bfloat16" else contextlib.nullcontext()

    def _on_device(self, batch: Batch) -> Batch:
        inputs: Tensor = batch.inputs.to(self.arm.device, self.dtype if batch.inputs.is_floating_point() else None)
        return Batch(inputs, batch.targets.to(self.arm.device))
