"""What a measure sees."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from skipway.lab.tasks import Batch, Task


@dataclass(frozen=True)
class Look:
    """A trial at one step. The model, its gradients and the random state must stay as they are."""

    model: nn.Module
    start: Callable[[], nn.Module]      # gives a copy of the model as it was before the first step
    task: Task
    batch: Batch                        # held out
