"""What a study will do, before it does it: arms with their cost, trials, expected time."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from skipway._errors import SkipwayError, StudyError
from skipway.lab import _cost
from skipway.lab._arms import Wanted, wanted
from skipway.lab._model import build, check, model_dtype, pairing
from skipway.lab._study import Study
from skipway.lab.records import Arm, Trial
from skipway.lab.tasks import Task
from skipway.lab.tasks import build as build_task
from skipway.wiring.trace import trace

PROBE = 0.5             # seconds of one look at depth, of a small model
START = 4.0             # seconds until a worker runs its first step
LONG = 3600.0           # seconds that want a yes


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before the first step."""

    study: Study
    task: Task
    arms: tuple[Arm, ...]
    rates: dict[str, tuple[float, ...]]     # by arm
    seeds: tuple[int, ...]                  # of the first look, and of the only one unless until_decided
    workers: int
    threshold: float                        # held-out loss that counts as learned
    chance: float                           # loss of a blind guess
    fingerprint: str                        # of the task's data

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials of the first look."""
        return tuple(Trial(a.name, lr, seed) for seed in self.seeds for a in self.arms for lr in self.rates[a.name])

    @property
    def seconds(self) -> float:
        """Expected wall time of these trials."""
        return START + sum(cost(a) * len(self.rates[a.name]) * len(self.seeds) for a in self.arms) / self.workers

    def meta(self) -> dict[str, Any]:
        """What the store keeps of it."""
        task = {"name": self.task.name(), "options": self.task.options, "data": self.task.data, "score": self.task.score_name, "chance": self.chance,
                "fingerprint": self.fingerprint}
        return {"study": self.study.model_dump(), "task": task, "threshold": self.threshold, "rates": {k: list(v) for k, v in self.rates.items()},
                "seeds": list(self.seeds), "expected_seconds": self.seconds}


def cost(arm: Arm) -> float:
    """Expected seconds of one trial: an evaluation's batch takes about a third of a training step."""
    evaluations = math.ceil(arm.steps / arm.evaluate) * arm.held_out / 3
    return arm.seconds * (arm.steps + evaluations) + PROBE * len(arm.probes)


def plan(study: Study, workers: int = 1, tell: Callable[[int, int], None] = lambda done, total: None) -> Plan:
    """Builds every arm once, counts and times it. Raises StudyError, SchemeError or TargetError, one line, for what cannot be run."""
    if study.device.partition(":")[0] not in ("cpu", "cuda"):
        raise StudyError(f"device {study.device}: want cpu or cuda")
    if study.device.startswith("cuda") and not torch.cuda.is_available():
        raise StudyError(f"device {study.device}: torch {torch.__version__} sees no such device; leave --device out to run on the CPU")
    task = build_task(study.task, study.data)
    asked = wanted(study, task)
    seeds = tuple(range(study.first_seed, study.first_seed + study.seeds))
    known: dict[str, nn.Module] = {}
    done: list[Arm] = []
    with _cost.one_thread():
        for k, one in enumerate(sorted(asked, key=lambda w: not w.arm.baseline)):   # baselines first: the others are matched to them
            base = next((a for a in done if a.baseline and a.group == one.arm.group), None)
            done.append(_costed(one, task, study.match, base, known))
            tell(k + 1, len(asked))
    order = {w.arm.name: i for i, w in enumerate(asked)}
    chance = task.chance()
    return Plan(study, task, tuple(sorted(done, key=lambda a: order[a.name])), {w.arm.name: w.rates for w in asked}, seeds, max(1, workers),
                chance / 2 if study.threshold is None else study.threshold, chance, fingerprint(task))


def _costed(one: Wanted, task: Task, match: str | None, base: Arm | None, known: dict[str, nn.Module]) -> Arm:
    arm = one.arm
    if match == "params" and base is not None:
        arm = _as_wide(arm, task, base)
    model = check(arm, task)
    arm = replace(arm, parameters=_cost.parameters(model), flops=_cost.flops(model, task, arm))
    arm = replace(arm, seconds=_cost.seconds(arm, task, one.rates[0]))
    if match in ("flops", "time") and base is not None:
        arm = _as_long(arm, base, match)
    if base is None:
        known[arm.group] = model
        shared = paired = arm.parameters
    else:
        shared, paired = pairing(model, known[arm.group])
    wiring, note = _wiring(model, task)
    return replace(arm, shared=shared, paired=paired, wiring=wiring, notes=(*arm.notes, *note))


def _as_wide(arm: Arm, task: Task, base: Arm) -> Arm:
    """The arm at the width, a multiple of its heads, whose parameters are nearest to the baseline's."""
    def count(width: int) -> int:
        try:
            return _cost.parameters(build(replace(arm, width=width), task, 0))
        except SkipwayError:
            return -1                       # a scheme's lanes or parts may not divide every width
    near = arm.width * math.sqrt(base.parameters / max(1, count(arm.width)))
    middle = max(1, round(near / arm.heads))
    tried = {w * arm.heads: count(w * arm.heads) for w in range(max(1, middle - 3), middle + 4)}
    found = {w: n for w, n in tried.items() if n > 0}
    if not found:
        raise StudyError(f"variant {arm.name}: no width near {near:.0f} that is a multiple of {arm.heads} heads can be built; "
                         "give it a width of its own")
    width = min(found, key=lambda w: abs(found[w] - base.parameters))
    off = found[width] / base.parameters - 1
    return replace(arm, width=width, notes=(f"width {width} in place of {arm.width}, for parameters within {off:+.1%} of {base.name}",))


def _as_long(arm: Arm, base: Arm, match: str) -> Arm:
    """The arm with as many steps as make its operations or its time those of the baseline."""
    ratio = base.flops / arm.flops if match == "flops" else base.seconds / arm.seconds
    steps = max(1, round(base.steps * ratio))
    scale = steps / arm.steps
    return replace(arm, steps=steps, warmup=round(arm.warmup * scale), evaluate=max(1, round(arm.evaluate * scale)),
                   probes=tuple(sorted({round(p * scale) for p in arm.probes})),
                   notes=(f"{steps} steps in place of {arm.steps}, for the {'operations' if match == 'flops' else 'time'} of {base.name}",))


def _wiring(model: nn.Module, task: Task) -> tuple[dict[str, Any], tuple[str, ...]]:
    inputs = task.batch("train", 0, 0, 2).inputs
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    try:
        return trace(model, inputs.to(device, model_dtype(model) if inputs.is_floating_point() else None)).to_dict(), ()
    except SkipwayError as error:
        return {}, (f"its wiring could not be read: {error}",)


def fingerprint(task: Task) -> str:
    """A hash of the task's first rows: a study goes on only with the data that it began with."""
    import hashlib
    found = hashlib.sha256()
    for split in ("train", "held_out"):
        for part in task.batch(split, 0, 0, 4):
            found.update(part.contiguous().numpy().tobytes())
    return found.hexdigest()[:16]
