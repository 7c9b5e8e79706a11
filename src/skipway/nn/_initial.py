"""Brings the weights of a branch to the start that a scheme asks for."""

import math
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from skipway._errors import SchemeError
from skipway.schemes import Init, Scheme

KINDS = ("input", "output", "query", "key", "value", "gate", "inner")


@runtime_checkable
class Exposes(Protocol):
    """A branch that says which of its weights is which."""

    def weights(self, kind: str) -> Iterable[Tensor]:
        """Its weights of a kind of KINDS, (out, in) matrices or slices of one; none where it has no such weights."""
        ...


def start(scheme: Scheme, branch: nn.Module, path: str) -> None:
    """Applies `scheme.initial()` to a branch. Raises SchemeError where the branch does not say which weights are meant."""
    wishes = scheme.initial()
    if not wishes:
        return
    found = {kind: _weights(branch, kind) for kind in wishes}
    if not any(found.values()):
        raise SchemeError(f"scheme {scheme.name()} sets the start of the {', '.join(wishes)} weights, and the branch {path or type(branch).__name__} "
                          f"does not say which those are; give {type(branch).__name__} a method weights(kind), or pass init=False")
    for kind, weights in found.items():
        for weight in weights:
            _apply(wishes[kind], weight)


def _weights(branch: nn.Module, kind: str) -> list[Tensor]:
    if isinstance(branch, Exposes):
        return list(branch.weights(kind))
    if isinstance(branch, nn.Linear):
        return [branch.weight] if kind == "output" else []
    if isinstance(branch, nn.Sequential):                   # the plain feed-forward: its first matrix reads, its last one writes
        matrices = [m.weight for m in branch if isinstance(m, nn.Linear)]
        return {"input": matrices[:1], "output": matrices[-1:]}.get(kind, []) if len(matrices) > 1 else []
    return []


@torch.no_grad()
def _apply(wish: Init, weight: Tensor) -> None:
    fan_out, fan_in = weight.shape[0], weight[0].numel()
    if wish.kind == "scale":
        weight.mul_(wish.gain)
    elif wish.kind == "xavier":
        weight.normal_(0.0, wish.gain * math.sqrt(2.0 / (fan_in + fan_out)))
    elif wish.kind == "he":
        weight.normal_(0.0, wish.gain * math.sqrt(2.0 / fan_in))
    elif wish.kind == "normal":
        weight.normal_(0.0, wish.gain)
    elif wish.kind == "zero":
        weight.zero_()
    else:
        raise SchemeError(f"unknown start {wish.kind!r} of a weight; wanted scale, xavier, he, normal or zero")
