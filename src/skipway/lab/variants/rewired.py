"""A given model with other joins: `base`, `base+rezero`, `base+layer_scale:init=0.1`, `base+lanes:scheme=mhc`, with `--model hf:PATH`.

The model is any target of `skipway check`: with the weights of its checkpoint where it has one, else with random ones that depend on the seed. What
stands behind the plus is an action of `skipway.rewire` on all main sites, or a scheme for `.to`. The model's logits are cut to the task's classes;
one without logits gets a linear head on its last state. Targets are loaded by name, as code of a file is (docs/decisions/0010).
"""

import copy
import inspect
from typing import Any

import torch
from torch import Tensor, nn

from skipway import schemes
from skipway._errors import RewireError, SkipwayError, StudyError
from skipway._load import load_module
from skipway.lab._names import Named, near
from skipway.lab.records import Arm
from skipway.lab.tasks import Task
from skipway.lab.tasks._base import seed_of
from skipway.surgery import actions, rewire

FIXED = ("depth", "width", "norm", "init")
TAKES = ("model",)
BASE = "base"
PLACED = ("observe", "read_from")           # actions that want a function or a single site


class Scored(nn.Module):
    """What a model says of the classes of a task."""

    def __init__(self, model: nn.Module, classes: int, sample: Tensor) -> None:
        super().__init__()
        self.model, self.classes = model, classes
        state = self._run(sample)
        self.head = None if hasattr(state, "logits") or isinstance(state, Tensor) else nn.Linear(state.last_hidden_state.shape[-1], classes)

    def _run(self, inputs: Tensor) -> Any:
        named = inspect.signature(self.model.forward).parameters
        return self.model(inputs, **({"use_cache": False} if "use_cache" in named else {}))

    def forward(self, inputs: Tensor) -> Tensor:
        out = self._run(inputs)
        if self.head is not None:
            scored: Tensor = self.head(out.last_hidden_state)
            return scored
        logits: Tensor = out if isinstance(out, Tensor) else out.logits
        return logits[..., :self.classes]


def takes(named: Named) -> bool:
    return named.name == BASE or named.name.startswith(f"{BASE}+")


def known() -> tuple[str, ...]:
    return (BASE, *(f"{BASE}+{edit}" for edit in _edits()))


def fields(named: Named) -> dict[str, Any]:
    edit = named.name.partition("+")[2]
    if named.name != BASE and edit not in _edits():
        raise near(edit, _edits(), "edit of a base")
    if not edit and named.options:
        raise StudyError(f"variant {named}: the base itself has no options; name an edit, as in base+rezero")
    return {"options": named.options}


def build(arm: Arm, task: Task, seed: int) -> nn.Module:
    if arm.model is None:
        raise StudyError(f"variant {arm.name}: which model is the base? Give --model, as in --model hf:PATH or --model file.py:make")
    model = _given(arm.model, seed)
    inputs = task.batch("train", 0, 0, 2).inputs
    torch.manual_seed(seed_of("head", seed))
    try:
        with torch.no_grad():
            made = Scored(model, task.classes, inputs)
    except Exception as error:
        raise StudyError(f"variant {arm.name}: {arm.model} fails on the inputs of task {task.name()}, of shape {tuple(inputs.shape)}: "
                         f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}") from error
    edit = arm.variant.partition(":")[0].partition("+")[2]
    if edit:
        torch.manual_seed(seed_of("edit", seed))
        options = dict(arm.options) if edit in actions.names() else {"scheme": edit, **arm.options}
        try:
            chosen = rewire(made, inputs).sites()
            getattr(chosen, edit if edit in actions.names() else "to")(**options).apply()
        except RewireError as error:
            raise StudyError(f"variant {arm.name}: {error}") from error
    return made


def _edits() -> tuple[str, ...]:
    return tuple(sorted({*schemes.names(), *actions.names()} - {*PLACED, "to"}))


def _given(target: str, seed: int) -> nn.Module:
    torch.manual_seed(seed_of("model", seed))               # for factories of files; hf: and the like take the seed themselves
    try:
        found = load_module("skipway.targets").resolve(target, seed=seed_of("model", seed) % 2**31).with_numbers()
    except SkipwayError as error:
        raise StudyError(f"--model {target}: {error}") from error
    model: nn.Module = copy.deepcopy(found.model)           # a file may hold the model itself
    for p in model.parameters():
        p.requires_grad_(p.is_floating_point())
    return model.train()
