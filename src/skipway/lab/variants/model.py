"""A model of `skipway.models`, as wide and deep as the study says: `gpt2`, `llama:scheme=rezero`, `qwen:kv_heads=1`.

Its parts have the proportions of its size "tiny": hidden width, widths and numbers of heads grow with the width and the heads. Options are the
fields of its configuration, `scheme`, and the options of that scheme. A model fits a task that has what it reads: token ids, or pictures.
"""

import dataclasses
import inspect
from typing import Any

import torch
from torch import Tensor, nn

from skipway import models, schemes
from skipway._errors import SkipwayError, StudyError
from skipway.lab._names import Named, near
from skipway.lab._start import begin
from skipway.lab.records import Arm
from skipway.lab.tasks import Task
from skipway.lab.tasks._base import seed_of
from skipway.models._build import family

FIXED = ("norm",)
STUDYS = {"dim": "width", "blocks": "depth", "heads": "heads"}                     # fields of a configuration that are a study's
WIDE = ("hidden", "expert_hidden", "embedded", "latent", "query_latent", "group_width")     # that grow with the width
HEAD = ("head_dim", "plain", "turned", "value")                                     # and with the width of a head; even, for rotary positions
TASKS = ("vocab", "context", "classes", "image", "patch", "channels", "head")       # and those that are a task's


class Logits(nn.Module):
    """A model's logits for the classes of a task."""

    def __init__(self, model: nn.Module, task: Task) -> None:
        super().__init__()
        self.model = model
        self.classes, self.pictures = task.classes, task.pictures if task.vocabulary is None else None

    def forward(self, inputs: Tensor) -> Tensor:
        out = self.model(inputs if self.pictures is None else self.pictures(inputs))
        logits: Tensor = out.logits
        return logits[..., :self.classes]

    @property
    def head(self) -> Any:
        """The module that reads the last state."""
        return self.model.head

    @property
    def stack(self) -> Any:
        """The model's only stack. Raises AttributeError where it has several."""
        return self.model.stack

    @property
    def embed(self) -> Any:
        """What the stream begins with."""
        return self.model.embed


def takes(named: Named) -> bool:
    return named.name.replace("-", "_") in models.names()


def known() -> tuple[str, ...]:
    return models.names()


def fields(named: Named) -> dict[str, Any]:
    own = {f.name for f in dataclasses.fields(_tiny(named.name))}
    rule = named.options.get("scheme")
    if rule is not None and str(rule).replace("-", "_") not in schemes.names():
        raise StudyError(f"model {named.name}: {near(str(rule), schemes.names(), 'scheme')}")
    rules = set(schemes.load(str(rule)).defaults()) if rule is not None else set()
    for key in named.options:
        if key in STUDYS:
            raise StudyError(f"model {named.name}: its {key} is the study's {STUDYS[key]}; give --{STUDYS[key]}, or that field of the variant")
        if key in TASKS:
            raise StudyError(f"model {named.name}: its {key} is the task's; leave it out")
        if key != "scheme" and key not in own | rules:
            raise StudyError(f"model {named.name}: {near(key, sorted(own - {*STUDYS, *TASKS} | rules | {'scheme'}), 'option')}")
    return {"model": named.name.replace("-", "_"), "scheme": None if rule is None else str(rule).replace("-", "_"), "options": named.options}


def build(arm: Arm, task: Task, seed: int) -> Logits:
    assert arm.model is not None
    _fits(arm, task)
    config = _tiny(arm.model)
    own = {f.name for f in dataclasses.fields(config)}
    rule = {k: v for k, v in arm.options.items() if k != "scheme" and k not in own}
    numbers = {**_scaled(config, arm), **_of_task(config, task), **{k: v for k, v in arm.options.items() if k in own}}
    torch.manual_seed(seed_of("model", seed))
    try:
        model = models.build(arm.model, scheme=arm.scheme, scheme_options=rule, **numbers)
    except SkipwayError:
        raise
    except Exception as error:
        raise StudyError(f"variant {arm.name}: {arm.model} cannot be built with width {arm.width} and {arm.heads} heads: {type(error).__name__}: "
                         f"{(str(error).splitlines() or [''])[0]}; take another width, or give its other fields as options") from error
    made = Logits(model, task)
    begin(made, arm.init, seed)
    return made


def _tiny(name: str) -> Any:
    try:
        return models.sizes(name)["tiny"]
    except SkipwayError as error:
        raise StudyError(f"variant {error}") from error


def _fits(arm: Arm, task: Task) -> None:
    """Raises StudyError where the model reads something that the task has not."""
    assert arm.model is not None
    parameters = inspect.signature(family(arm.model).forward).parameters
    reads = [n for n, p in parameters.items() if n != "self" and p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    has = "input_ids" if task.vocabulary is not None else "pixel_values" if task.side else None
    if reads != [has]:
        gives = {"input_ids": "token ids", "pixel_values": "pictures", None: f"{task.features} numbers"}[has]
        raise StudyError(f"variant {arm.name}: {arm.model} reads {' and '.join(reads)}, and task {task.name()} gives {gives}; take another model "
                         "or task")


def _scaled(config: Any, arm: Arm) -> dict[str, Any]:
    """The study's numbers, and the others in proportion."""
    made: dict[str, Any] = {"dim": arm.width, "blocks": arm.depth}
    wider, head = arm.width / config.dim, arm.width / arm.heads / (config.dim / max(1, config.heads))
    if config.heads:
        made["heads"] = arm.heads
    for names, factor, step in ((WIDE, wider, 1), (HEAD, head, 2)):
        for name in names:
            told = getattr(config, name, None)
            if told is not None:
                made[name] = max(step, step * round(told * factor / step))
    if getattr(config, "kv_heads", None):
        most = max(1, config.kv_heads * arm.heads // config.heads)
        made["kv_heads"] = max(k for k in range(1, most + 1) if arm.heads % k == 0)
    if hasattr(config, "depths"):
        stages = min(len(config.depths), arm.depth)
        made["depths"] = tuple(arm.depth // stages + (k < arm.depth % stages) for k in range(stages))
    return made


def _of_task(config: Any, task: Task) -> dict[str, Any]:
    found: dict[str, Any] = {"channels": 1, "classes": task.classes, "image": task.side, "patch": task.patch}
    if task.vocabulary is not None:
        spare = getattr(config, "context", 0) % 64          # RoBERTa has places before the first token's: 258 for 256
        found = {"vocab": max(task.vocabulary, task.classes), "context": task.length + spare}
    return {k: v for k, v in found.items() if hasattr(config, k)}
