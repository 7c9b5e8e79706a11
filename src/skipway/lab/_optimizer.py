"""The optimizer of a trial: one or two of torch's, with the schemes' wishes on learning rate and weight decay, and one schedule."""

import copy
import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import StudyError
from skipway.lab.records import Arm
from skipway.nn import Stack

FLOOR = 0.1             # of the peak rate, at the end of a cosine


class Optimizer:
    """AdamW, SGD with momentum, or Muon for the matrices of the stack and AdamW for the rest."""

    def __init__(self, model: nn.Module, arm: Arm, lr: float) -> None:
        self.arm = arm
        groups = _groups(model, arm)
        self.all: list[Any] = []
        if arm.optimizer == "muon":
            if not hasattr(torch.optim, "Muon"):
                raise StudyError(f"optimizer muon: torch {torch.__version__} has none; take adamw or sgd, or a newer torch")
            inner = _matrices(model)
            hidden, rest = _parted(groups, inner)
            self.all += [torch.optim.Muon([_group(g, lr, False) for g in hidden], lr=lr, adjust_lr_fn="match_rms_adamw")] if hidden else []
            groups = rest
        if groups and arm.optimizer == "sgd":
            self.all.append(torch.optim.SGD([_group(g, lr, False) for g in groups], lr=lr, momentum=0.9))
        elif groups:
            self.all.append(torch.optim.AdamW([_group(g, lr, True) for g in groups], lr=lr, betas=(0.9, 0.95)))
        self.peaks = [[g["lr"] for g in o.param_groups] for o in self.all]

    def step(self, step: int) -> float:
        """One step, number `step` from 0; gives the factor on the rates."""
        now = factor(self.arm, step)
        for optimizer, peaks in zip(self.all, self.peaks, strict=True):
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * now
            optimizer.step()
        return now

    def zero_grad(self) -> None:
        """Lets go of all gradients."""
        for optimizer in self.all:
            optimizer.zero_grad(set_to_none=True)

    def over(self, tensors: Mapping[Tensor, Tensor]) -> "Optimizer":
        """The same over other tensors, by parameter: the classes, the groups and all that they hold. Its state is new."""
        made = copy.copy(self)
        made.all = [type(o)([{**group, "params": [tensors[p] for p in group["params"]]} for group in o.param_groups]) for o in self.all]
        return made

    def tensors(self) -> dict[str, Tensor]:
        """The whole state: of each optimizer, name and dtype, the numbers of the parameters "of" in a row. Few tensors take less time to write."""
        made: dict[str, Tensor] = {}
        for k, optimizer in enumerate(self.all):
            rows: dict[str, dict[int, Tensor]] = {}
            for i, state in optimizer.state_dict()["state"].items():
                for name, value in state.items():
                    if isinstance(value, Tensor):
                        rows.setdefault(f"{k}.{name}.{str(value.dtype).removeprefix('torch.')}", {})[i] = value.flatten()
            made |= {key: torch.cat(list(row.values())) for key, row in rows.items()}
            made |= {f"{key}.of": torch.tensor(list(row)) for key, row in rows.items()}
        return made

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Takes a state of `tensors` back, as exact as it was."""
        for k, optimizer in enumerate(self.all):
            own = [p for group in optimizer.param_groups for p in group["params"]]
            state: dict[int, dict[str, Tensor]] = {}
            for key, row in tensors.items():
                number, name, _, *of = key.split(".")
                if int(number) == k and not of:
                    places = tensors[f"{key}.of"].tolist()
                    shapes = [torch.Size() if name == "step" else own[i].shape for i in places]     # all but a step is of its parameter
                    for i, shape, part in zip(places, shapes, row.split([s.numel() for s in shapes]), strict=True):
                        state.setdefault(i, {})[name] = part.view(shape).clone()
            optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def factor(arm: Arm, step: int) -> float:
    """Of the learning rate at a step from 0: linear warm-up, then constant, cosine to a tenth, or linear to zero."""
    if step < arm.warmup:
        return (step + 1) / arm.warmup
    part = (step - arm.warmup) / max(1, arm.steps - arm.warmup)
    if arm.schedule == "cosine":
        return FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * part))
    return 1 - part if arm.schedule == "linear" else 1.0


def _groups(model: nn.Module, arm: Arm) -> list[dict[str, Any]]:
    """Groups with "params" and the factors "lr_scale", "eps_scale", "weight_decay" that they want; vectors take no weight decay."""
    found: list[dict[str, Any]] = []
    for module in model.modules():
        if isinstance(module, Stack):
            told = {id(p) for g in found for p in g["params"]}
            found += [{**g, "params": [p for p in g["params"] if id(p) not in told]} for g in module.param_groups()]
    told = {id(p) for g in found for p in g["params"]}
    found.append({"params": [p for p in model.parameters() if id(p) not in told]})
    made: dict[tuple[float, ...], dict[str, Any]] = {}          # one for each wish: every group more costs a step more
    for group in found:
        decay = group.get("weight_decay", arm.weight_decay * group.get("weight_decay_scale", 1.0))
        common = {"lr_scale": group.get("lr_scale", 1.0), "eps_scale": group.get("eps_scale", 1.0)}
        learned = [p for p in group["params"] if p.requires_grad]
        for p in learned:
            wish = {"weight_decay": decay if p.ndim > 1 else 0.0, **common}
            made.setdefault(tuple(wish.values()), {"params": [], **wish})["params"].append(p)
    return list(made.values())


def _group(group: dict[str, Any], lr: float, adam: bool) -> dict[str, Any]:
    made = {"params": group["params"], "lr": lr * group["lr_scale"], "weight_decay": group["weight_decay"]}
    return {**made, "eps": 1e-8 * group["eps_scale"]} if adam else made


def _matrices(model: nn.Module) -> set[int]:
    """Ids of the matrices between the model's ends: those of its stack, or of a model of one's own all but tables and the last."""
    stack = getattr(model, "stack", None)
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    inside: Iterable[nn.Parameter] = stack.parameters() if isinstance(stack, nn.Module) else list(model.parameters())[:-2]
    return {id(p) for p in inside if p.ndim == 2 and min(p.shape) > 1} - tables


def _parted(groups: list[dict[str, Any]], inner: set[int]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    sides: tuple[list[dict[str, Any]], list[dict[str, Any]]] = [], []
    for group in groups:
        for side, wanted in zip(sides, (True, False), strict=True):
            mine = [p for p in group["params"] if (id(p) in inner) == wanted]
            side.extend([{**group, "params": mine}] if mine else [])
    return sides
