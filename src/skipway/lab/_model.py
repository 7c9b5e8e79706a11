"""The model of an arm: the task's input, a stack of blocks on one stream, the task's output; and its start.

Every number that two arms share starts equal: a parameter's values depend on the seed and its name alone, not on what else a model holds. Only then
the scheme brings its branches to the start that it asks for.
"""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from skipway import schemes
from skipway._errors import SkipwayError, StudyError
from skipway._load import attribute, call, load_module
from skipway.lab._blocks import spread, sublayer
from skipway.lab.records import Arm
from skipway.lab.tasks import Task
from skipway.lab.tasks._base import seed_of
from skipway.nn import Stack
from skipway.nn._initial import start as wishes

NORMS = {"layer_norm": nn.LayerNorm, "rms_norm": nn.RMSNorm}
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


class Model(nn.Module):
    """head(stack(embed(inputs))): outputs of the task's shape."""

    def __init__(self, embed: nn.Module, stack: Stack, head: nn.Module) -> None:
        super().__init__()
        self.embed, self.stack, self.head = embed, stack, head

    def forward(self, inputs: Tensor) -> Tensor:
        y: Tensor = self.head(self.stack(self.embed(inputs)))
        return y


def build(arm: Arm, task: Task, seed: int) -> nn.Module:
    """The model of an arm as a trial with this seed begins. The global random state is left as it was. Raises StudyError or SchemeError."""
    with torch.random.fork_rng(devices=[]):
        model = _factory(arm, task, seed) if arm.factory else _stacked(arm, task, seed)
        return model.to(arm.device, DTYPES[arm.dtype]) if arm.dtype == "float64" else model.to(arm.device)


def _stacked(arm: Arm, task: Task, seed: int) -> Model:
    assert arm.scheme is not None
    torch.manual_seed(seed_of("branches", seed))
    roles = task.sublayers * arm.depth
    branches = [sublayer(role, arm.width, arm.heads, task.causal) for role in roles]
    embed, head = task.embed(arm.width), task.head(arm.width)
    torch.manual_seed(seed_of("schemes", seed))             # what a scheme draws does not depend on what the branches drew
    stack = Stack(branches, arm.width, arm.scheme, per_block=len(task.sublayers), norm=NORMS[arm.norm], init=False, **arm.options)
    model = Model(embed, stack, head)
    _fill(model, arm.init, seed)
    for k, layer in enumerate(stack._own()):
        torch.manual_seed(seed_of("wishes", seed, k))
        wishes(layer.scheme, layer.branch, f"of a {roles[k]} block")
    return model


@torch.no_grad()
def _fill(model: nn.Module, kind: str, seed: int) -> None:
    """Draws every matrix that is not a scheme's own, by its name; biases of those are zero. Norms stay as they were built."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for name, p in model.named_parameters():
        if ".scheme." in name:
            continue
        if name.endswith("bias") and p.ndim == 1:
            p.zero_()
        elif p.ndim > 1:
            generator = torch.Generator().manual_seed(seed_of("parameter", name, seed))
            std = 0.5 ** 0.5 if id(p) in tables else spread(kind, p[0].numel(), p.shape[0])
            p.copy_(torch.randn(p.shape, generator=generator) * std)


def _factory(arm: Arm, task: Task, seed: int) -> nn.Module:
    """What "file.py:factory" gives, called with those of the known arguments that it names."""
    assert arm.factory is not None
    path, name = arm.factory.rsplit(":", 1)
    make = attribute(load_module(path), name, arm.factory)
    if not callable(make):
        raise StudyError(f"variant {arm.factory}: got {type(make).__name__}, want a function or class that gives the model")
    known = {"task": task, "depth": arm.depth, "width": arm.width, "heads": arm.heads, "vocabulary": task.vocabulary, "features": task.features,
             "length": task.length, "classes": task.classes, "causal": task.causal, "norm": NORMS[arm.norm]}
    given = _named(make, known, arm)
    torch.manual_seed(seed_of("factory", seed))
    model = call(lambda: make(**given), arm.factory)
    if not isinstance(model, nn.Module):
        raise StudyError(f"variant {arm.factory}: it returned {type(model).__name__}, want a torch.nn.Module from inputs to outputs")
    return model


def _named(make: Any, known: dict[str, Any], arm: Arm) -> dict[str, Any]:
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


def check(arm: Arm, task: Task) -> nn.Module:
    """Builds the model and runs one batch. Raises StudyError where outputs and targets do not fit, or the model fails."""
    model = build(arm, task, 0)
    batch = task.batch("train", 0, 0, 2)
    try:
        out = model(batch.inputs.to(arm.device, model_dtype(model) if batch.inputs.is_floating_point() else None))
    except SkipwayError:
        raise
    except Exception as error:
        raise StudyError(f"variant {arm.name}: its model fails on inputs of shape {tuple(batch.inputs.shape)}: {type(error).__name__}: "
                         f"{(str(error).splitlines() or [''])[0]}") from error
    want = (*batch.targets.shape, task.classes)
    if not isinstance(out, Tensor) or tuple(out.shape) != want:
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise StudyError(f"variant {arm.name}: its model gives {got}, and task {task.name()} wants a tensor of shape {want}")
    return model


def model_dtype(model: nn.Module) -> torch.dtype:
    """Of its first floating parameter."""
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def pairing(model: nn.Module, baseline: nn.Module) -> tuple[int, int]:
    """Numbers in parameters that both have by name and shape, and those of them that start equal."""
    theirs = dict(baseline.named_parameters())
    both = [(p, theirs[n]) for n, p in model.named_parameters() if n in theirs and theirs[n].shape == p.shape]
    return sum(p.numel() for p, _ in both), sum(p.numel() for p, q in both if torch.equal(p, q))


def known_scheme(name: str) -> bool:
    """Whether there is such a scheme; loads nothing."""
    return name.replace("-", "_") in schemes.names()
