"""A scheme: the task's input, a stack of its blocks on one stream, the task's output."""

from typing import Any

import torch
from torch import Tensor, nn

from skipway import schemes
from skipway._errors import StudyError
from skipway.lab._blocks import NORMS, sublayer
from skipway.lab._names import Named, near
from skipway.lab._start import begin
from skipway.lab.records import Arm
from skipway.lab.tasks import Task
from skipway.lab.tasks._base import seed_of
from skipway.nn import Stack

FIXED = ()


class Model(nn.Module):
    """head(stack(embed(inputs))): outputs of the task's shape."""

    def __init__(self, embed: nn.Module, stack: Stack, head: nn.Module) -> None:
        super().__init__()
        self.embed, self.stack, self.head = embed, stack, head

    def forward(self, inputs: Tensor) -> Tensor:
        y: Tensor = self.head(self.stack(self.embed(inputs)))
        return y


def takes(named: Named) -> bool:
    return named.name.replace("-", "_") in schemes.names()


def known() -> tuple[str, ...]:
    return schemes.names()


def fields(named: Named) -> dict[str, Any]:
    has = schemes.load(named.name).defaults()
    for key in named.options:
        if key not in has:
            raise StudyError(f"scheme {named.name}: {near(key, tuple(has), 'option') if has else 'it has none'}")
    return {"scheme": named.name.replace("-", "_"), "options": named.options}


def build(arm: Arm, task: Task, seed: int) -> Model:
    assert arm.scheme is not None
    torch.manual_seed(seed_of("branches", seed))
    branches = [sublayer(role, arm.width, arm.heads, task.causal) for role in task.sublayers * arm.depth]
    embed, head = task.embed(arm.width), task.head(arm.width)
    torch.manual_seed(seed_of("schemes", seed))             # what a scheme draws does not depend on what the branches drew
    stack = Stack(branches, arm.width, arm.scheme, per_block=len(task.sublayers), norm=NORMS[arm.norm], init=False, **arm.options)
    model = Model(embed, stack, head)
    begin(model, arm.init, seed)
    return model
