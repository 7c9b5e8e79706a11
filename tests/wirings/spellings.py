"""The ways to write an add: each `join(x, y, ...)` equals x + y, or gain * x + scale * y where it says so."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Plain = Callable[[Tensor, Tensor], Tensor]


def _in_place_on_copy(x: Tensor, y: Tensor) -> Tensor:
    out = x.clone()
    out += y
    return out


def _through_view(x: Tensor, y: Tensor) -> Tensor:
    out = y.clone(memory_format=torch.contiguous_format)
    out.view(-1, x.shape[-1]).add_(x.reshape(-1, x.shape[-1]))
    return out


def _einsum_of_pair(x: Tensor, y: Tensor) -> Tensor:
    return torch.einsum("p...,p->...", torch.stack([x, y]), torch.ones(2, dtype=x.dtype, device=x.device))


def _foreach(x: Tensor, y: Tensor) -> Tensor:
    added: Tensor = torch._foreach_add([x], [y])[0]
    return added


PLAIN: dict[str, Plain] = {
    "x + y": lambda x, y: x + y,
    "y + x": lambda x, y: y + x,
    "out = x.clone(); out += y": _in_place_on_copy,
    "torch.add(x, y)": lambda x, y: torch.add(x, y),
    "y.add_(x)": lambda x, y: y.add_(x),
    "x.add(y)": lambda x, y: x.add(y),
    "sum([x, y])": lambda x, y: sum([x, y], start=torch.zeros((), dtype=x.dtype, device=x.device)),
    "0 + x + y": lambda x, y: 0 + x + y,
    "torch.stack([x, y]).sum(0)": lambda x, y: torch.stack([x, y]).sum(0),
    "x - (-y)": lambda x, y: x - (-y),
    "torch.sub(x, y, alpha=-1)": lambda x, y: torch.sub(x, y, alpha=-1),
    "FloatFunctional().add(x, y)": lambda x, y: torch.ao.nn.quantized.FloatFunctional().add(x, y),
    "einsum of the stacked pair": _einsum_of_pair,
    "out.view(-1, d).add_(x)": _through_view,
    "torch._foreach_add([x], [y])": _foreach,
}
SHAPED = tuple(PLAIN)                    # all of these serve any shape


@dataclass(frozen=True)
class Spelling:
    """A spelling that carries more than a plain add: which gain and scale it has, and what it needs."""

    name: str
    gain: float = 1.0
    scale: str = "none"
    branch_scale: float | None = None
    fused: bool = False                 # the branch's last matrix product is part of the add


MORE = {s.name: s for s in (
    Spelling("torch.add(x, y, alpha=c)", scale="constant", branch_scale=0.25),
    Spelling("torch.addcmul(x, gamma, y)", scale="vector"),
    Spelling("torch.lerp(x, y, 0.5)", gain=0.5, scale="constant", branch_scale=0.5),
    Spelling("torch.baddbmm(x, a, w)", fused=True),
    Spelling("torch.addmm(x, a, w)", fused=True),
)}
ALL = (*PLAIN, *MORE)


def join_scaled(name: str, x: Tensor, y: Tensor, gamma: Tensor | None) -> Tensor:
    """A spelling of MORE that takes the finished branch."""
    if name == "torch.add(x, y, alpha=c)":
        return torch.add(x, y, alpha=0.25)
    if name == "torch.lerp(x, y, 0.5)":
        return torch.lerp(x, y, 0.5)
    assert gamma is not None
    return torch.addcmul(x, gamma, y)


def join_fused(name: str, x: Tensor, activations: Tensor, last: nn.Module) -> Tensor:
    """x + activations @ weight^T in one operation; `last` is a Linear without bias."""
    assert isinstance(last, nn.Linear) and last.bias is None
    weight = last.weight.t()
    if name == "torch.baddbmm(x, a, w)":
        return torch.baddbmm(x, activations, weight.expand(x.shape[0], -1, -1))
    return torch.addmm(x.flatten(0, 1), activations.flatten(0, 1), weight).view(x.shape)
