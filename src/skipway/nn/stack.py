"""Many branches on one stream."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import SchemeError
from skipway.nn.residual import Residual


class Stack(nn.Module):
    """Branches in a row on one stream: enter, a read and a write each, leave, and the final norm where the scheme wants one.

    branches        modules; a keyword argument of the call goes to each branch whose forward names it
    dim, scheme, dropout, stream_dtype, per_block, norm, init, options      as in `Residual`
    roles           kind of each branch; by default what its attribute `role` says
    final_norm      whether a norm stands behind the last sublayer; None leaves it to the scheme

    x is (..., dim). With extras=True the call returns (y, [what each branch returned besides]). Raises as `Residual` does.
    """

    def __init__(self, branches: Iterable[nn.Module], dim: int, scheme: str = "pre_norm", *, dropout: float = 0.0, stream_dtype: torch.dtype | None = None,
                 per_block: int = 2, roles: Iterable[str] | None = None, norm: Callable[[int], nn.Module] = nn.LayerNorm, final_norm: bool | None = None,
                 init: bool = True, **options: Any) -> None:
        super().__init__()
        found = list(branches)
        if not found:
            raise SchemeError("a stack of no branches; give at least one")
        kinds = list(roles) if roles is not None else ["" for _ in found]
        if len(kinds) != len(found):
            raise SchemeError(f"{len(kinds)} roles for {len(found)} branches; give one for each")
        self.layers = nn.ModuleList(Residual(b, dim, scheme, dropout=dropout, stream_dtype=stream_dtype, depth=len(found), index=k, role=kinds[k],
                                             per_block=per_block, norm=norm, init=init, **options) for k, b in enumerate(found))
        wants = self.layers[-1].scheme.final_norm if final_norm is None else final_norm
        self.final_norm = norm(dim) if wants else None
        self.takes = [_named(b) for b in found]

    def forward(self, x: Tensor, *, extras: bool = False, **kwargs: Any) -> Any:
        """The stream after all branches, (..., dim)."""
        _known(kwargs, self.takes)
        stream, collected = self.layers[0].enter(x), []
        for layer, takes in zip(self.layers, self.takes):
            mine = kwargs if takes is None else {k: v for k, v in kwargs.items() if k in takes}
            stream, more = layer.step(stream, compute=x.dtype, **mine)
            collected.append(more)
        y = self.layers[-1].scheme.leave(stream)
        y = (y if self.final_norm is None else self.final_norm(y)).to(x.dtype)
        return (y, collected) if extras else y

    def param_groups(self, lr: float | None = None) -> list[dict[str, Any]]:
        """Groups for a torch optimizer: the schemes' own wishes, and one group of all else."""
        made = [group for layer in self.layers for group in layer.scheme.param_groups(lr) if len(group) > 1]
        told = {id(p) for group in made for p in group["params"]}
        return [{"params": [p for p in self.parameters() if id(p) not in told]}, *made]


def _named(branch: nn.Module) -> frozenset[str] | None:
    """Names of the keyword arguments of a branch's forward; None where it takes any."""
    parameters = inspect.signature(branch.forward).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))


def _known(kwargs: dict[str, Any], takes: list[frozenset[str] | None]) -> None:
    for key in kwargs:
        if not any(names is None or key in names for names in takes):
            known = sorted(frozenset().union(*(names for names in takes if names is not None)))
            raise TypeError(f"no branch of the stack takes {key!r}; they take {', '.join(known)}")
