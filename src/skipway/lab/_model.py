"""The model of an arm, built by its kind of variant, and whether it fits the task."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from skipway._errors import SkipwayError, StudyError
from skipway.lab import variants
from skipway.lab._measure import evaluating
from skipway.lab.records import Arm
from skipway.lab.tasks import Task

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


def build(arm: Arm, task: Task, seed: int) -> nn.Module:
    """The model of an arm as a trial with this seed begins. The global random state is left as it was. Raises StudyError or SchemeError."""
    with torch.random.fork_rng(devices=[]):
        make: Callable[[Arm, Task, int], nn.Module] = variants.load(arm.kind).build
        model = make(arm, task, seed)
        return model.to(arm.device, DTYPES[arm.dtype]) if arm.dtype == "float64" else model.to(arm.device)


def check(arm: Arm, task: Task) -> nn.Module:
    """Builds the model and runs one batch.

    Raises StudyError where outputs and targets do not fit, the model fails, or a token's output depends on later tokens where those are the answer.
    """
    model = build(arm, task, 0)
    batch = task.batch("train", 0, 0, 2)
    inputs = batch.inputs.to(arm.device, model_dtype(model) if batch.inputs.is_floating_point() else None)
    out = _run(model, inputs, arm)
    want = (*batch.targets.shape, task.classes)
    if not isinstance(out, Tensor) or tuple(out.shape) != want:
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise StudyError(f"variant {arm.name}: its model gives {got}, and task {task.name()} wants a tensor of shape {want}")
    if task.causal and task.vocabulary is not None and inputs.shape[1] > 1 and batch.targets.ndim > 1:
        _blind(model, inputs, arm, task)
    return model


def _run(model: nn.Module, inputs: Tensor, arm: Arm) -> object:
    try:
        return model(inputs)
    except SkipwayError:
        raise
    except Exception as error:
        raise StudyError(f"variant {arm.name}: its model fails on inputs of shape {tuple(inputs.shape)}: {type(error).__name__}: "
                         f"{(str(error).splitlines() or [''])[0]}") from error


def _blind(model: nn.Module, inputs: Tensor, arm: Arm, task: Task) -> None:
    """Raises StudyError where another last token changes what the model says before it."""
    assert task.vocabulary is not None
    other = inputs.clone()
    other[:, -1] = (other[:, -1] + 1) % task.vocabulary
    with evaluating(model), torch.no_grad():
        one, two = model(inputs)[:, :-1], model(other)[:, :-1]
    if not torch.allclose(one, two, rtol=1e-3, atol=1e-4, equal_nan=True):
        raise StudyError(f"variant {arm.name}: its output at a token depends on later tokens, which are the answer in task {task.name()}; "
                         "take a causal model")


def model_dtype(model: nn.Module) -> torch.dtype:
    """Of its first floating parameter."""
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def pairing(model: nn.Module, baseline: nn.Module) -> tuple[int, int]:
    """Numbers in parameters that both have by name and shape, and those of them that start equal."""
    theirs = dict(baseline.named_parameters())
    both = [(p, theirs[n]) for n, p in model.named_parameters() if n in theirs and theirs[n].shape == p.shape]
    return sum(p.numel() for p, _ in both), sum(p.numel() for p, q in both if torch.equal(p, q))
