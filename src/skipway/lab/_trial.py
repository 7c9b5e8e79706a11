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
from skipway.lab.measures import Look
from skipway.lab.measures import load as load_measure
from skipway.lab.records import Arm, Depth, Measure, Outcome, Point, Readout, Trial, finite, record
from skipway.lab.tasks import Batch, Task
from skipway.lab.tasks._base import HELD_OUT, TRAIN, seed_of
from skipway.nn import Stack

DIVERGED = 10.0                 # a loss above so many times the larger of the first loss and a blind guess's is a divergence
LATEST = 60.0                   # seconds after which a checkpoint is written, however many steps they were
ROWS: dict[str, type] = {"points": Point, "depths": Depth, "readouts": Readout, "measures": Measure}
Tell = Callable[[int, float], None]


def run(arm: Arm, trial: Trial, task: Task, checkpoint: pathlib.Path | None = None, tell: Tell = lambda step, loss: None,
        stop: Callable[[], bool] = lambda: False) -> Outcome | None:
    """Trains to the end, or until `stop` says so between two steps: then the checkpoint is written and None is given.

    A trial that stops and goes on records the same numbers, to the last bit, as one that does not (on the CPU, with one thread).
    tell: called with the steps done and the last loss. Raises StoreError for a damaged checkpoint, OSError where the disk is full.
    """
    return Run(arm, trial, task, checkpoint).run(tell, stop)


class Run:
    """A trial between two steps. A stack of several (`_together`) trains them at once and leaves all else to each."""

    def __init__(self, arm: Arm, trial: Trial, task: Task, checkpoint: pathlib.Path | None = None) -> None:
        self.arm, self.trial, self.task, self.path = arm, trial, task, checkpoint
        self.start, self.saved = time.perf_counter(), time.monotonic()
        reset_peak(arm.device)
        self.model = build(arm, task, trial.seed)
        number = seed_of("run", trial.seed)                 # of what the model draws while it trains, such as dropout
        torch.manual_seed(number)
        random.seed(number)
        np.random.seed(number % 2 ** 32)
        self.optimizer = Optimizer(self.model, arm, trial.lr)
        self.parameters = list(self.model.parameters())     # listed once: a walk over the modules costs as much as some of their layers
        self.stacks = [m for m in self.model.modules() if isinstance(m, Stack)]
        self.dtype = model_dtype(self.model)
        self.points: list[Point] = []
        self.depths: list[Depth] = []
        self.readouts: list[Readout] = []
        self.measures: list[Measure] = []
        self.notes: list[str] = []
        self.step, self.resumed, self.probed = 0, 0, -1
        self.losses: list[float] = []                       # since the last point
        self.gradients: list[float] = []
        self.first: float | None = None
        self.seconds = self.before = self.last = 0.0
        self.chance = task.chance()
        self.held = [self._on_device(task.batch(HELD_OUT, 0, k, arm.batch)) for k in range(arm.held_out)]
        if checkpoint is not None and checkpoint.exists():
            self.go_on(_checkpoint.read(checkpoint, self.model, self.optimizer))

    def run(self, tell: Tell, stop: Callable[[], bool]) -> Outcome | None:
        self.model.train()
        while self.step < self.arm.steps:
            self.probe()
            if stop():
                self._save()
                return None
            ended = self.took(*self.train())
            tell(self.step, self.last)
            if ended is None and self.due():
                ended = self.held_at(*self.evaluate())
            if ended is not None:
                return ended
            if (self.step % self.arm.checkpoint == 0 or time.monotonic() - self.saved > LATEST) and self.step < self.arm.steps:
                self._save()
        self.probe()
        return self.outcome("finished")

    def batch(self, step: int) -> Batch:
        """The rows of a step."""
        return self._on_device(self.task.batch(TRAIN, self.trial.seed, step, self.arm.batch))

    def train(self) -> tuple[float, float, float, float]:
        """One step: its loss, the gradient's norm, the rate that it was made with, and its seconds."""
        start = time.perf_counter()
        batch = self.batch(self.step)
        with self._precision():
            out = self.model(batch.inputs)
        loss = self.task.loss(out, batch)
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.parameters, math.inf if self.arm.clip is None else self.arm.clip)
        rate = self.trial.lr * self.optimizer.step(self.step)
        self.advance()
        return float(loss.detach()), float(norm), rate, time.perf_counter() - start

    def advance(self) -> None:
        """Tells schemes that change over training of a step."""
        for stack in self.stacks:
            stack.advance(1)

    def took(self, loss: float, norm: float, rate: float, seconds: float) -> Outcome | None:
        """Keeps what a step gave; the outcome where that is a divergence."""
        self.step += 1
        self.last, self.rate = loss, rate
        self.first = loss if self.first is None else self.first
        self.losses.append(loss)
        self.gradients.append(norm)
        self.seconds += seconds
        if not loss <= DIVERGED * max(self.first, self.chance):                 # also where it is not a number
            return self._diverged(loss)
        return None

    def due(self) -> bool:
        """Whether the held-out loss is wanted now."""
        return self.step % self.arm.evaluate == 0 or self.step == self.arm.steps

    def evaluate(self) -> tuple[list[float], list[float]]:
        losses, scores = [], []
        with evaluating(self.model), torch.no_grad(), self._precision():
            for batch in self.held:
                out = self.model(batch.inputs)
                losses.append(float(self.task.loss(out, batch)))
                scores.append(self.task.score(out, batch))
        return losses, scores

    def held_at(self, losses: list[float], scores: list[float]) -> Outcome | None:
        """Keeps a held-out evaluation; the outcome where that is a divergence."""
        held = sum(losses) / len(losses)
        self._train_point()
        self.points.append(Point(HELD_OUT, self.step, finite(held), finite(sum(scores) / len(scores))))
        return None if math.isfinite(held) else self._diverged(held)

    def _train_point(self) -> None:
        mean = sum(self.losses) / len(self.losses)
        self.points.append(Point(TRAIN, self.step, finite(mean), None, self.rate, finite(sum(self.gradients) / len(self.gradients))))
        self.losses, self.gradients = [], []

    def probe(self) -> None:
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
        if self.arm.measures:
            look = Look(self.model, lambda: build(self.arm, self.task, self.trial.seed), self.task, self.held[0])
            self.measures += [Measure(self.step, name, load_measure(name).value(look)) for name in self.arm.measures]

    def _diverged(self, loss: float) -> Outcome:
        if self.losses:
            self._train_point()
        said = "the loss is not finite" if not math.isfinite(loss) else f"the loss is {loss:.3g}, over {DIVERGED:g} times what it began with"
        return self.outcome("diverged", f"{said} at step {self.step}")

    def outcome(self, state: str, reason: str = "") -> Outcome:
        last = next((p for p in reversed(self.points) if p.split == HELD_OUT), None) if state == "finished" else None
        tokens = self.step * self.arm.batch * self.task.length
        return Outcome(
            state, self.step, reason, last.loss if last else None, last.score if last else None, tuple(self.points), tuple(self.depths),
            tuple(self.readouts), self.seconds, self.before + time.perf_counter() - self.start, tokens / self.seconds if self.seconds else None,
            peak(self.arm.device), self.resumed, versions(self.arm.device), tuple(self.notes), tuple(self.measures))

    def _save(self) -> None:
        if self.path is None:
            return
        self.saved = time.monotonic()
        _checkpoint.write(self.path, self.model, self.optimizer, self.progress())

    def progress(self) -> dict[str, Any]:
        """What is recorded so far, as plain values."""
        return {"trial": asdict(self.trial), "step": self.step, "probed": self.probed, "first": self.first, "losses": self.losses,
                "gradients": self.gradients, "seconds": self.seconds, "wall": self.before + time.perf_counter() - self.start,
                "resumed": self.resumed, "notes": self.notes, **{name: [vars(row) for row in getattr(self, name)] for name in ROWS}}

    def go_on(self, kept: dict[str, Any]) -> None:
        """Takes `progress` back."""
        self.step, self.probed, self.first = kept["step"], kept["probed"], kept["first"]
        self.losses, self.gradients, self.notes = kept["losses"], kept["gradients"], kept["notes"]
        self.seconds, self.before, self.resumed = kept["seconds"], kept["wall"], kept["resumed"] + 1
        for name, kind in ROWS.items():
            setattr(self, name, [record(kind, row) for row in kept[name]])

    def _precision(self) -> Any:
        return torch.autocast(self.arm.device.partition(":")[0], torch.bfloat16) if self.arm.dtype == "bfloat16" else contextlib.nullcontext()

    def _on_device(self, batch: Batch) -> Batch:
        inputs: Tensor = batch.inputs.to(self.arm.device, self.dtype if batch.inputs.is_floating_point() else None)
        return Batch(inputs, batch.targets.to(self.arm.device))
