"""From the variants and factors of a study to its arms: every field filled in, every name checked, nothing built yet."""

import itertools
from dataclasses import dataclass, replace
from typing import Any

from skipway._errors import StudyError
from skipway.lab import measures, variants
from skipway.lab._names import near, parse
from skipway.lab._study import FACTORS, Study, Variant
from skipway.lab.records import Arm
from skipway.lab.tasks import Task

GENERAL: dict[str, Any] = {"depth": 6, "width": 64, "heads": 4, "steps": 500, "batch": 32, "warmup": 0, "init": "lecun", "weight_decay": 0.01,
                           "held_out": 4, "lr": [3e-4, 1e-3, 3e-3]}
EVALUATIONS, CHECKPOINTS = 20, 5


@dataclass(frozen=True)
class Wanted:
    """An arm and its learning rates."""

    arm: Arm
    rates: tuple[float, ...]


def wanted(study: Study, task: Task) -> list[Wanted]:
    """All arms of a study, in order. Raises StudyError for a name, option or combination that makes no sense."""
    usual = {**GENERAL, **task.defaults}
    fields = {**usual, **{k: v for k, v in study.model_dump().items() if v is not None}}
    if study.warmup is None:
        fields["warmup"] = round(usual["warmup"] * fields["steps"] / usual["steps"])
    given = [v if isinstance(v, Variant) else Variant(variant=v) for v in study.variants]
    crossed = {name: fields[name] for name in FACTORS if isinstance(fields.get(name), list) and len(fields[name]) > 1}
    names = _names(given)
    _taken(study, given)
    if not any(study.baseline == n for n in names) and study.baseline is not None and len(given) > 1:
        raise near(study.baseline, names, "baseline")
    made = []
    for values in itertools.product(*crossed.values()):
        cell = dict(zip(crossed, values, strict=True))
        said = " ".join(f"{k}={v}" for k, v in cell.items())
        for name, variant in zip(names, given, strict=True):
            made.append(_one(study, task, fields, variant, name, cell, said, len(given) > 1))
    return _with_baseline(made, study, names)


def _taken(study: Study, given: list[Variant]) -> None:
    """Raises StudyError where a field of the study is given on which none of its variants stands."""
    used = {variants.kind(parse(v.variant, "variant")) for v in given}
    for kind in set(variants.names()) - used:
        for key in getattr(variants.load(kind), "TAKES", ()):
            if getattr(study, key) is not None:
                some = " or ".join(variants.load(kind).known()[:2])
                raise StudyError(f"--{key} {getattr(study, key)}: none of the variants stands on it; take {some}, or leave {key} out")


def _names(variants: list[Variant]) -> list[str]:
    names = [v.name or str(parse(v.variant, "variant")) for v in variants]
    for name in names:
        if names.count(name) > 1:
            raise StudyError(f"variant {name!r} stands {names.count(name)} times; give each a name of its own, or take repeats out")
    return names


def _one(study: Study, task: Task, fields: dict[str, Any], variant: Variant, name: str, cell: dict[str, Any], said: str, many: bool) -> Wanted:
    own = {k: v for k, v in variant.model_dump().items() if v is not None and k not in ("variant", "name")}
    both = sorted(set(own) & set(cell))
    if both:
        raise StudyError(f"variant {name}: it sets {both[0]}, which is also a factor of the study; leave one of them out")
    f = {**{k: v[0] if k in FACTORS and isinstance(v, list) else v for k, v in fields.items()}, **cell, **own}
    named = parse(variant.variant, "variant")
    kind = variants.kind(named)
    for key in sorted(set(variants.load(kind).FIXED) & {*cell, *own}):
        raise StudyError(f"variant {name}: {key} changes nothing of it; leave {key} out, or take variants that follow it")
    given = {key: getattr(study, key) for key in getattr(variants.load(kind), "TAKES", ())}
    told = {"scheme": None, "factory": None, "model": None, **given, **variants.load(kind).fields(named)}
    steps = f["steps"]
    rates = f["lr"] if isinstance(f["lr"], list) else [f["lr"]]
    asked = tuple(m.replace("-", "_") for m in study.measure if measures.load(m))
    arm = Arm(
        name=f"{name} {said}".strip(), variant=variant.variant, group=said if many else "", baseline=False,
        kind=kind, **told, task=study.task, data=study.data, depth=f["depth"], width=f["width"], heads=f["heads"], norm=f["norm"],
        init=f["init"], dtype=f["dtype"], batch=f["batch"], steps=steps, warmup=f["warmup"], schedule=f["schedule"], optimizer=f["optimizer"],
        weight_decay=f["weight_decay"], clip=None if f["clip"] == "none" else f["clip"],
        evaluate=min(steps, study.evaluate or max(1, steps // EVALUATIONS)), held_out=f["held_out"],
        probes=_probes(study.probes, steps), measures=asked, checkpoint=study.checkpoint or max(1, steps // CHECKPOINTS), device=study.device)
    return Wanted(arm, tuple(sorted(set(rates))))


def _probes(asked: int | list[int], steps: int) -> tuple[int, ...]:
    if isinstance(asked, list):
        return tuple(sorted({min(s, steps) for s in asked}))
    if asked < 2:
        return (0,) * asked
    return tuple(sorted({round(k * steps / (asked - 1)) for k in range(asked)}))


def _with_baseline(made: list[Wanted], study: Study, names: list[str]) -> list[Wanted]:
    """Marks the baseline of every group: the named variant, or the first."""
    first: dict[str, str] = {}
    for w in made:
        own = w.arm.name.removesuffix(w.arm.group).strip()
        if study.baseline is None or study.baseline in (own, w.arm.name):
            first.setdefault(w.arm.group, w.arm.name)
    if not first:
        raise near(study.baseline or "", [w.arm.name for w in made], "baseline")
    return [Wanted(replace(w.arm, baseline=first.get(w.arm.group) == w.arm.name), w.rates) for w in made]
