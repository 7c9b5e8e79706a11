"""`file.py:factory`: a function or class of one's own that gives the model, called with those of the known arguments that it names."""

import inspect
from typing import Any

import torch
from torch import nn

from skipway._errors import StudyError
from skipway._load import attribute, call, load_module
from skipway.lab._blocks import NORMS
from skipway.lab._names import Named
from skipway.lab.records import Arm
from skipway.lab.tasks import Task
from skipway.lab.tasks._base import seed_of

FIXED = ("init",)


def takes(named: Named) -> bool:
    return named.file


def known() -> tuple[str, ...]:
    return ()


def fields(named: Named) -> dict[str, Any]:
    return {"factory": named.name, "options": named.options}


def build(arm: Arm, task: Task, seed: int) -> nn.Module:
    assert arm.factory is not None
    path, name = arm.factory.rsplit(":", 1)
    make = attribute(load_module(path), name, arm.factory)
    if not callable(make):
        raise StudyError(f"variant {arm.factory}: got {type(make).__name__}, want a function or class that gives the model")
    given = _named(make, arm, {
        "task": task, "depth": arm.depth, "width": arm.width, "heads": arm.heads, "vocabulary": task.vocabulary, "features": task.features,
        "length": task.length, "classes": task.classes, "causal": task.causal, "norm": NORMS[arm.norm]})
    torch.manual_seed(seed_of("factory", seed))
    model = call(lambda: make(**given), arm.factory)
    if not isinstance(model, nn.Module):
        raise StudyError(f"variant {arm.factory}: it returned {type(model).__name__}, want a torch.nn.Module from inputs to outputs")
    return model


def _named(make: Any, arm: Arm, known: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(make).parameters
    every = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    needed = [n for n, p in parameters.items() if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    unknown = [n for n in needed if n not in known and n not in arm.options]
    if unknown:
        raise StudyError(f"variant {arm.factory}: it wants {', '.join(unknown)}; a factory is given {', '.join(known)}, "
                         "and the options of the variant")
    foreign = [n for n in arm.options if n not in parameters and not every]
    if foreign:
        raise StudyError(f"variant {arm.variant}: {arm.factory} takes no {', '.join(foreign)}; it takes {', '.join(parameters) or 'nothing'}")
    return {**(known if every else {n: v for n, v in known.items() if n in parameters}), **arm.options}
