"""Many seeds of one variant in one process by torch.func vmap, against the same seeds one after the other: processor time of a seed's training step.

    python bench/seeds_together.py [--tasks copy,mlp_depth,digits] [--seeds 3,5,10] [--quick] [--json FILE]

Both sides train the default arm of a task with one thread: batches of the task, forward, backward, clip, AdamW. Together: functional_call under
vmap over stacked parameters, one backward pass, norms and clipping by seed, one optimizer over the stack. Attention is the plain matrix products
there, since torch's fused attention on the CPU has no batching rule. No bar; the table of docs/decisions/0011. The losses are compared, too.
"""

import argparse
import json
import pathlib
import sys
import time
import warnings
from collections.abc import Callable

import torch
from torch.func import functional_call, stack_module_state, vmap

from skipway import lab
from skipway.lab import tasks
from skipway.lab._machine import settings
from skipway.lab._model import build
from skipway.lab._optimizer import Optimizer, factor
from skipway.lab.records import Arm

RATE = 1e-3


def apart(arm: Arm, task: tasks.Task, seeds: int) -> Callable[[int], list[float]]:
    """A step of every seed, one after the other; gives the losses."""
    models = [build(arm, task, seed) for seed in range(seeds)]
    optimizers = [Optimizer(model, arm, RATE) for model in models]

    def step(at: int) -> list[float]:
        losses = []
        for seed, (model, optimizer) in enumerate(zip(models, optimizers)):
            batch = task.batch("train", seed, at, arm.batch)
            loss = task.loss(model(batch.inputs), batch)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), arm.clip or float("inf"))
            optimizer.step(at)
            losses.append(loss.item())
        return losses
    return step


def together(arm: Arm, task: tasks.Task, seeds: int) -> Callable[[int], list[float]]:
    """A step of all seeds at once; gives the losses."""
    models = [build(arm, task, seed) for seed in range(seeds)]
    parameters, buffers = stack_module_state(models)
    own = list(parameters.values())                         # one axis more than a model's: a vector is a matrix here
    groups = [{"params": [p for p in own if p.ndim > 2], "weight_decay": arm.weight_decay},
              {"params": [p for p in own if p.ndim < 3], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95))

    def one(p: dict, b: dict, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return task.loss(functional_call(models[0], (p, b), (inputs,)), tasks.Batch(inputs, targets))

    every = vmap(one, randomness="different")

    def step(at: int) -> list[float]:
        batches = [task.batch("train", seed, at, arm.batch) for seed in range(seeds)]
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            losses = every(parameters, buffers, *(torch.stack(part) for part in zip(*batches)))
        optimizer.zero_grad()
        losses.sum().backward()
        norms = torch.stack([p.grad.flatten(1).norm(dim=1) for p in own]).norm(dim=0)
        scale = ((arm.clip or float("inf")) / (norms + 1e-6)).clamp(max=1.0)
        for p in own:
            p.grad.mul_(scale.view(-1, *[1] * (p.ndim - 1)))
        for group in optimizer.param_groups:
            group["lr"] = RATE * factor(arm, at)
        optimizer.step()
        return losses.tolist()
    return step


def measured(name: str, seeds: int, steps: int, rounds: int) -> dict:
    """Milliseconds of a seed's step on both sides, in turn; the fastest of the rounds, since what else a machine does only adds."""
    task = tasks.build(name)
    arm = lab.plan(lab.Study(task=name, variants=["pre_norm"], seeds=1, lr=RATE, probes=0)).arms[0]
    sides = {"apart": apart(arm, task, seeds), "together": together(arm, task, seeds)}
    found: dict[str, list[float]] = {side: [] for side in sides}
    off = 0.0
    for k in range(rounds + 1):                             # the first round warms up
        ends = {}
        for side, step in sides.items():
            start = time.process_time()
            for at in range(k * steps, (k + 1) * steps):
                ends[side] = step(at)
            if k:
                found[side].append((time.process_time() - start) / steps / seeds * 1e3)
        off = max(off, *(abs(a / b - 1) for a, b in zip(*ends.values())))
    fast = {side: min(times) for side, times in found.items()}
    return {"task": name, "seeds": seeds, **fast, "ratio": fast["apart"] / fast["together"], "off": off}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="copy,mlp_depth,digits")
    parser.add_argument("--seeds", default="3,5,10")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    settings(1)
    warnings.filterwarnings("ignore", message=".*batching rule.*")
    rows = []
    print(f"{'task':<12}{'seeds':>6}{'apart ms':>10}{'together ms':>13}{'ratio':>8}  largest relative difference of a loss")
    for name in options.tasks.split(","):
        for seeds in map(int, options.seeds.split(",")):
            row = measured(name, seeds, 5 if options.quick else 20, 1 if options.quick else 3)
            rows.append(row)
            print(f"{name:<12}{seeds:>6}{row['apart']:>10.2f}{row['together']:>13.2f}{row['ratio']:>8.2f}  {row['off']:.1e}", flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
