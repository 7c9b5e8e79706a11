"""Parameter groups for an optimizer, from what the schemes of a stack wish."""

from collections.abc import Iterable
from typing import Any

from torch import nn

from skipway.nn._join import Join
from skipway.schemes import Tuning


def groups(model: nn.Module, layers: Iterable[Join], lr: float | None, eps: float | None, weight_decay: float | None) -> list[dict[str, Any]]:
    """One group of all that wants nothing, then the schemes' own parameters and the branches' weights where their settings differ.

    Where a base value is given, a group holds the product ("lr", "eps", "weight_decay"), else the factor ("lr_scale", "eps_scale",
    "weight_decay_scale").
    """
    made: list[dict[str, Any]] = []
    told: set[int] = set()

    def add(parameters: Iterable[nn.Parameter], settings: dict[str, Any]) -> None:
        mine = [p for p in dict.fromkeys(parameters) if id(p) not in told]
        if mine and settings:
            told.update(id(p) for p in mine)
            made.append({"params": mine, **settings})

    for layer in layers:
        tuning = layer.scheme.tuning()
        eps_too = _scaled("eps", eps, tuning.eps)
        for group in layer.scheme.param_groups(lr):
            add(group["params"], {k: v for k, v in group.items() if k != "params"} | eps_too)
        if tuning != Tuning():
            own = list(layer.branch.parameters())
            add([p for p in own if p.ndim > 1],
                _scaled("lr", lr, tuning.matrix) | eps_too | _scaled("weight_decay", weight_decay, tuning.decay))
            add([p for p in own if p.ndim < 2], _scaled("lr", lr, tuning.vector) | eps_too)
    return [{"params": [p for p in model.parameters() if id(p) not in told]}, *made]


def _scaled(key: str, base: float | None, factor: float) -> dict[str, float]:
    if factor == 1.0:
        return {}
    return {f"{key}_scale": factor} if base is None else {key: base * factor}
