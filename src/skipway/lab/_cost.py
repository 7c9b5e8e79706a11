"""What an arm costs: learned numbers, operations of a training step, seconds of one."""

import contextlib
import time
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from skipway.lab._model import model_dtype
from skipway.lab._trial import Run
from skipway.lab.records import Arm, Trial
from skipway.lab.tasks import Batch, Task

TIMED = 5               # steps, behind one that warms up


def parameters(model: nn.Module) -> int:
    """Learned numbers; one that is shared counts once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def flops(model: nn.Module, task: Task, arm: Arm) -> int:
    """Of one training step: two for each multiply-add of a matrix product or attention, forward and backward; elementwise work is not counted."""
    batch = task.batch("train", 0, 0, 1)
    inputs = batch.inputs.to(arm.device, model_dtype(model) if batch.inputs.is_floating_point() else None)
    batch = Batch(inputs, batch.targets.to(arm.device))
    counter = FlopCounterMode(display=False)
    with counter, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        task.loss(model(batch.inputs), batch).backward()
    model.zero_grad(set_to_none=True)
    return int(counter.get_total_flops()) * arm.batch


def seconds(arm: Arm, task: Task, lr: float) -> float:
    """Of one training step with one thread: the fastest of five, since what else a machine does only adds."""
    with one_thread(), torch.random.fork_rng(devices=[]):
        run = Run(arm, Trial(arm.name, lr, 0), task, None)
        run.train()
        found = []
        for _ in range(TIMED):
            start = time.perf_counter()
            run.train()
            found.append(time.perf_counter() - start)
    return min(found)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """As a worker runs: small models gain nothing by more threads, and on a busy machine threads that wait for one another lose a lot."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
