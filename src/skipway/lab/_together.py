"""Many seeds of an arm trained at once: each parameter of all seeds is one tensor, and each seed's model has a slice of it.

The step is that of `_trial` under torch.func's vmap: same rows, same starts, same clipping and optimizer for each seed, but products of stacked
matrices round otherwise, so numbers agree with a trial's own in all but the last digits. All else is each seed's `Run`, on its slice.
"""

import math
import pathlib
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from skipway._errors import SkipwayError, StudyError
from skipway.lab import _checkpoint
from skipway.lab._measure import evaluating
from skipway.lab._trial import LATEST, Run
from skipway.lab.records import Arm, Outcome, Trial
from skipway.lab.tasks import Batch, Task

CLOSE = {"float32": 1e-3, "float64": 1e-4}         # relative difference of losses and gradients that rounding explains, in `check`
LOOKED, ROWS = 3, 8                                 # steps that `check` compares, and rows of each
Tell = Callable[[int, dict[int, float]], None]


def run(arm: Arm, trials: Sequence[Trial], task: Task, checkpoint: pathlib.Path | None = None, tell: Tell = lambda step, losses: None,
        stop: Callable[[], bool] = lambda: False) -> dict[int, Outcome] | None:
    """Outcomes by seed, or None after a stop, as `_trial.run`. The trials differ in their seeds alone.

    Where there is a checkpoint, its seeds are trained, in the order in which they began, whichever of them are asked for. tell: losses by seed.
    """
    seeds = (_checkpoint.peek(checkpoint).get("seeds") if checkpoint is not None and checkpoint.exists() else None) or [t.seed for t in trials]
    found = Together(arm, [replace(trials[0], seed=s) for s in seeds], task, checkpoint).run(tell, stop)
    return None if found is None else {t.seed: found[t.seed] for t in trials}


class Together:
    """The runs of some seeds of one arm at one rate."""

    def __init__(self, arm: Arm, trials: Sequence[Trial], task: Task, checkpoint: pathlib.Path | None = None) -> None:
        self.arm, self.task, self.path, self.saved = arm, task, checkpoint, time.monotonic()
        self.runs = [Run(arm, trial, task) for trial in trials]
        self.models = nn.ModuleList(r.model for r in self.runs).train()
        self.parameters = _one([dict(m.named_parameters()) for m in self.models])
        self.buffers = _one([dict(m.named_buffers()) for m in self.models])
        self.learned = [p for p in self.parameters.values() if p.requires_grad]
        first = self.runs[0]
        self.optimizer = first.optimizer.over({p: self.parameters[name] for name, p in first.model.named_parameters()})
        self.seen = vmap(self._seen, in_dims=(0, 0, None, None))
        self.losses = vmap(lambda p, b, inputs, targets: self._seen(p, b, inputs, targets)[0])
        self.step = 0
        self.ended: dict[int, Outcome] = {}                 # by seed, of those that diverged
        if checkpoint is not None and checkpoint.exists():
            self._go_on(_checkpoint.read(checkpoint, self.models, self.optimizer))

    def run(self, tell: Tell, stop: Callable[[], bool]) -> dict[int, Outcome] | None:
        """To the end, or until `stop`. A seed that diverged stays in the stack, unrecorded, so that no number depends on when it did."""
        while self.step < self.arm.steps and self.living():
            for each in self.living():
                each.probe()
            if stop():
                self._save()
                return None
            self._took(*self.train())
            tell(self.step, {r.trial.seed: r.last for r in self.living()})
            if (self.step % self.arm.checkpoint == 0 or time.monotonic() - self.saved > LATEST) and self.step < self.arm.steps:
                self._save()
        for each in self.living():
            each.probe()
            self._end(each, each.outcome("finished"))
        return self.ended

    def living(self) -> list[Run]:
        """Runs that have not ended."""
        return [r for r in self.runs if r.trial.seed not in self.ended]

    def train(self) -> tuple[list[float], list[float], float, float]:
        """One step of all seeds: losses, norms of the gradients, the rate, and seconds of one seed's share."""
        start = time.perf_counter()
        batches = [r.batch(self.step) for r in self.runs]
        with sdpa_kernel(SDPBackend.MATH):                  # the fused attention of the CPU has no batching rule and would go seed by seed
            losses = self.losses(self.parameters, self.buffers, *(torch.stack(part) for part in zip(*batches, strict=True)))
        self.optimizer.zero_grad()
        losses.sum().backward()
        norms = self._clip()
        rate = self.runs[0].trial.lr * self.optimizer.step(self.step)
        for each in self.runs:
            each.advance()
        return losses.tolist(), norms.tolist(), rate, (time.perf_counter() - start) / len(self.runs)

    def evaluate(self) -> list[tuple[list[float], list[float]]]:
        """Held-out losses and scores of each seed."""
        found: list[tuple[list[float], list[float]]] = [([], []) for _ in self.runs]
        with evaluating(self.models), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            for batch in self.runs[0].held:
                losses, outs = self.seen(self.parameters, self.buffers, *batch)
                for kept, loss, out in zip(found, losses.tolist(), outs, strict=True):
                    kept[0].append(loss)
                    kept[1].append(self.task.score(out, batch))
        return found

    def _seen(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        out = functional_call(self.runs[0].model, (parameters, buffers), (inputs,))
        return self.task.loss(out, Batch(inputs, targets)), out

    def _clip(self) -> Tensor:
        """The norm of each seed's gradient; each is clipped by its own, as torch's clip_grad_norm_ does."""
        grads = [p.grad for p in self.learned if p.grad is not None]
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads]).norm(dim=0)
        scale = ((math.inf if self.arm.clip is None else self.arm.clip) / (norms + 1e-6)).clamp(max=1.0)
        for g in grads:
            g.mul_(scale.view(-1, *[1] * (g.ndim - 1)))
        return norms

    def _took(self, losses: list[float], norms: list[float], rate: float, seconds: float) -> None:
        self.step += 1
        for each, loss, norm in zip(self.runs, losses, norms, strict=True):
            if each.trial.seed not in self.ended:
                self._end(each, each.took(loss, norm, rate, seconds))
        if self.living() and self.living()[0].due():
            for each, found in zip(self.runs, self.evaluate(), strict=True):
                if each.trial.seed not in self.ended:
                    self._end(each, each.held_at(*found))

    def _end(self, each: Run, outcome: Outcome | None) -> None:
        if outcome is not None:
            told = {**outcome.environment, "stack": [r.trial.seed for r in self.runs]}
            self.ended[each.trial.seed] = replace(outcome, environment=told)

    def _save(self) -> None:
        if self.path is not None:
            self.saved = time.monotonic()
            _checkpoint.write(self.path, self.models, self.optimizer, {
                "seeds": [r.trial.seed for r in self.runs], "step": self.step, "runs": [r.progress() for r in self.runs],
                "ended": [[seed, asdict(outcome)] for seed, outcome in self.ended.items()]})

    def _go_on(self, kept: dict[str, Any]) -> None:
        self.step = kept["step"]
        self.ended = {seed: Outcome.from_dict(outcome) for seed, outcome in kept["ended"]}
        for each, progress in zip(self.runs, kept["runs"], strict=True):
            each.go_on(progress)


def _one(rows: list[dict[str, Any]]) -> dict[str, Tensor]:
    """One tensor for each name, (seed, ...); those of the rows become its slices."""
    made = {}
    for name, first in rows[0].items():
        made[name] = torch.stack([row[name].detach() for row in rows]).requires_grad_(first.requires_grad)
        for k, row in enumerate(rows):
            row[name].data = made[name].data[k]
    return made


def check(arm: Arm, task: Task, lr: float) -> None:
    """Raises StudyError where two seeds in a stack do not make the steps that each makes alone, or cannot be stacked at all."""
    if arm.optimizer == "muon":
        raise _refused(arm, "optimizer muon orthogonalises one matrix at a time")
    if arm.dtype not in CLOSE:
        raise _refused(arm, f"dtype {arm.dtype} is too coarse to see a stack go wrong")
    small = replace(arm, batch=min(arm.batch, ROWS), held_out=1, probes=())
    trials = [Trial(arm.name, lr, seed) for seed in (0, 1)]
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.filterwarnings("ignore", message=".*batching rule")
            stacked = _numbers(Together(small, trials, task))
        apart = [_numbers(Run(small, trial, task)) for trial in trials]
    except SkipwayError:
        raise
    except Exception as error:
        raise _refused(arm, f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}") from error
    for alone, row in zip(apart, zip(*stacked, strict=True), strict=True):
        if not torch.allclose(torch.tensor(row), torch.tensor(alone), rtol=CLOSE[arm.dtype], atol=CLOSE[arm.dtype] / 10, equal_nan=True):
            raise _refused(arm, "a seed in a stack does not train as it does alone")


def _numbers(made: Any) -> list[Any]:
    """Loss and gradient of some steps, and then the held-out loss: of a run, or a list of those of each seed."""
    one = isinstance(made, Run)
    made.model.train() if one else None
    found = []
    for _ in range(LOOKED):
        loss, norm, *_ = made.train()
        found += [loss, norm]
        made.step += 1
    held = made.evaluate()
    return [*found, *held[0]] if one else [*found, [losses[0] for losses, _ in held]]


def _refused(arm: Arm, why: str) -> StudyError:
    return StudyError(f"engine together: variant {arm.name} does not train as a stack of seeds ({why}); take --engine local")
