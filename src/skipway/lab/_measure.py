"""What is measured of a model at chosen steps: stream, write and gradient by depth, and what a linear readout recovers of the input."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import SkipwayError
from skipway.lab.records import Depth, Readout, finite
from skipway.lab.tasks import Batch, Task
from skipway.probing import probe

ROWS = 8                # of the batch that depth is measured on
FIT = 512               # states that a readout is fitted on, and as many that it is tested on


def depths(model: nn.Module, task: Task, batch: Batch, step: int) -> tuple[list[Depth], str]:
    """A row for each sublayer, and a note where there is none. The model, its gradients and the random state stay as they were."""
    rows = Batch(batch.inputs[:ROWS], batch.targets[:ROWS])
    with evaluating(model):
        try:
            table = probe(model, rows.inputs, loss=lambda out: task.loss(out, rows))
            main = table.rows[0].stream
            return [Depth(step, r.index, r.layer, r.kind, _f(r.after), _f(r.branch), _f(r.ratio), _f(r.grad_stream)) for r in table.rows
                    if r.stream == main], ""
        except SkipwayError as error:
            if not hasattr(model, "stack"):
                return [], f"depth is not measured: {error}"
        return _at_branches(model, task, rows, step), ""


def _f(value: float | None) -> float | None:
    return None if value is None else finite(value)


def _at_branches(model: Any, task: Task, rows: Batch, step: int) -> list[Depth]:
    """Without a join there is nothing that `probe` could stand at: the state after a sublayer is what its branch returned."""
    layers, seen = list(model.stack.layers), []
    hooks = [layer.branch.register_forward_hook(lambda m, args, out: seen.append(out[0] if isinstance(out, tuple) else out)) for layer in layers]
    enter: list[Tensor] = []
    hooks.append(model.embed.register_forward_hook(lambda m, args, out: enter.append(out)))
    try:
        loss = task.loss(model(rows.inputs), rows)
        grads = torch.autograd.grad(loss, seen, allow_unused=True)
    finally:
        for hook in hooks:
            hook.remove()
    sizes = [_rms(t) for t in (enter[0], *seen)]
    per_block = len(task.sublayers)
    return [Depth(step, k, k // per_block, getattr(layers[k].branch, "role", "other"), sizes[k + 1], sizes[k + 1],
                  sizes[k + 1] / sizes[k] if sizes[k] and sizes[k + 1] is not None else None, None if grads[k] is None else _rms(grads[k]), "branch")   # type: ignore[operator]
            for k in range(len(layers))]


def _rms(t: Tensor) -> float | None:
    return finite(float(t.detach().double().square().mean().sqrt()))


def readout(model: nn.Module, task: Task, batches: list[Batch], step: int) -> Readout | None:
    """Ridge regression from the state that the head reads to the input at the same place.

    None for a model without a `head`, or whose head reads other rows.
    """
    head = getattr(model, "head", None)
    if not isinstance(head, nn.Module):
        return None
    states: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda m, args: states.append(args[0].detach()))
    try:
        with evaluating(model), torch.no_grad():
            for batch in batches:
                model(batch.inputs)
    finally:
        hook.remove()
    x = torch.cat([s.flatten(0, -2) for s in states]).double().cpu()
    y = torch.cat([b.inputs.flatten() if task.features is None else b.inputs.flatten(0, -2) for b in batches]).cpu()
    if len(x) != len(y):
        return None
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:2 * FIT]
    x, y = x[order], y[order]
    return _recovered(x, y, step) if task.features is None else _explained(x, y.double(), step)


def _recovered(x: Tensor, y: Tensor, step: int) -> Readout:
    cut = len(x) // 2
    classes = int(y.max()) + 1
    chance = float(torch.bincount(y[cut:], minlength=classes).max() / (len(y) - cut))
    guess = _ridge(x, nn.functional.one_hot(y, classes).double(), cut)
    return Readout(step, None if guess is None else float((guess.argmax(1) == y[cut:]).double().mean()), "accuracy", chance)


def _explained(x: Tensor, y: Tensor, step: int) -> Readout:
    cut = len(x) // 2
    guess = _ridge(x, y, cut)
    spread = (y[cut:] - y[:cut].mean(0)).square().sum()
    return Readout(step, None if guess is None else finite(float(1 - (guess - y[cut:]).square().sum() / spread)), "R2", 0.0)


def _ridge(x: Tensor, y: Tensor, cut: int) -> Tensor | None:
    """The prediction for the rows from `cut` on of a ridge regression on those before. None where a state is not finite."""
    if not bool(x.isfinite().all()):
        return None
    x = (x - x[:cut].mean(0)) / x[:cut].std().clamp_min(1e-300)     # one scale for all: a readout may use what little is left of a direction
    middle = y[:cut].mean(0)
    gram = x[:cut].T @ x[:cut]
    weights = torch.linalg.solve(gram + 1e-4 * cut * torch.eye(x.shape[1], dtype=x.dtype), x[:cut].T @ (y[:cut] - middle))
    return x[cut:] @ weights + middle


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in eval mode; every module gets its own mode back."""
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for m, mode in modes:
            m.training = mode
