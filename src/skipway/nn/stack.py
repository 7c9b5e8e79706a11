"""Many branches on one stream."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from skipway._errors import SchemeError
from skipway.nn._groups import groups
from skipway.nn._join import left_out
from skipway.nn._reversed import Tape
from skipway.nn._routing import chosen, gives, refuse_unknown, takes
from skipway.nn.sublayer import Sublayer

ACTIVATIONS = ("stored", "recomputed", "reversed")


class Stack(nn.Module):
    """Branches in a row on one stream: enter, a read and a write each, leave, and the final norm where the scheme wants one.

    branches        modules; a keyword argument of the call goes to each branch that takes it: by its forward's names, or by its attribute `takes`.
                    Where a branch has an attribute `gives`, names for what it returns behind y, those go to later branches as keyword arguments.
    dim, scheme, dropout, stream_dtype, per_block, norm, init, options      as in `Residual`
    drop_path       stochastic depth: p grows with depth to this, p_l = drop_path l / N for block l of N; or one value for each branch
    roles           kind of each branch; by default what its attribute `role` says
    final_norm      whether a norm stands behind the last sublayer; None leaves it to the scheme
    activations     what is kept for backward: "stored", all; "recomputed", each sublayer's stream, the sublayer runs again; "reversed", the last
                    stream alone, memory is flat in depth, and dropout is replayed. None is "reversed" for schemes that can be undone,
                    "stored" for the others. Under torch.compile, whose graph has no hooks, "reversed" keeps all.

    x is (..., dim). With extras=True the call returns (y, [what each branch returned besides]). Raises as `Residual` does.
    """

    def __init__(self, branches: Iterable[nn.Module], dim: int, scheme: str = "pre_norm", *, dropout: float = 0.0,
                 drop_path: float | Sequence[float] = 0.0, stream_dtype: torch.dtype | None = None, per_block: int = 2,
                 roles: Iterable[str] | None = None, norm: Callable[[int], nn.Module] = nn.LayerNorm, final_norm: bool | None = None,
                 init: bool = True, activations: str | None = None, **options: Any) -> None:
        super().__init__()
        found = list(branches)
        if not found:
            raise SchemeError("a stack of no branches; give at least one")
        kinds = list(roles) if roles is not None else ["" for _ in found]
        if len(kinds) != len(found):
            raise SchemeError(f"{len(kinds)} roles for {len(found)} branches; give one for each")
        rates = _rates(drop_path, len(found), per_block)
        shared: dict[str, Any] = {"dropout": dropout, "stream_dtype": stream_dtype, "depth": len(found), "per_block": per_block, "norm": norm}
        # A branch that stands at several depths is brought to its start once: scaled again at each, it would vanish.
        fresh = [init and not any(b is earlier for earlier in found[:k]) for k, b in enumerate(found)]
        self.layers = nn.ModuleList(Sublayer(b, dim, scheme, index=k, role=kinds[k], drop_path=rates[k], init=fresh[k], **shared, **options)
                                    for k, b in enumerate(found))
        own = self._own()
        wants = own[-1].scheme.final_norm if final_norm is None else final_norm
        self.final_norm = norm(dim).to(stream_dtype) if wants else None
        self.stream_dtype = stream_dtype
        self.activations = _activations(activations, own[-1])
        self.takes = [takes(b) for b in found]
        self.gives = [gives(b) for b in found]

    def forward(self, x: Tensor, *, extras: bool = False, **kwargs: Any) -> Any:
        """The stream after all branches, (..., dim)."""
        refuse_unknown(kwargs, self.takes)
        layers = self._own()
        step = self._step()
        stream, collected = layers[0].enter(x), []
        for layer, names, given in zip(layers, self.takes, self.gives):
            stream, more = step(layer, stream, x.dtype, chosen(kwargs, names))
            kwargs = kwargs | dict(zip(given, more))
            collected.append(more[len(given):])
        y = layers[-1].scheme.leave(stream)
        y = (y if self.final_norm is None else self.final_norm(y)).to(x.dtype)
        return (y, collected) if extras else y

    def _step(self) -> Callable[[Sublayer, Any, torch.dtype, dict[str, Any]], tuple[Any, tuple[Any, ...]]]:
        """How a sublayer is run, after what is kept of it."""
        learns = torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters())
        if learns and self.activations == "recomputed":
            return lambda layer, stream, compute, kwargs: cast(Any, checkpoint(partial(layer, **kwargs), stream, compute, use_reentrant=False))
        if learns and self.activations == "reversed" and not torch.compiler.is_compiling():
            return Tape(len(self.layers)).step
        return lambda layer, stream, compute, kwargs: layer(stream, compute, **kwargs)

    def _own(self) -> list[Sublayer]:
        return list(cast(Iterator[Sublayer], iter(self.layers)))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Stack":
        with left_out(self, "final_norm", fn, self.stream_dtype if recurse else None):
            super()._apply(fn, recurse)
        return self

    def param_groups(self, lr: float | None = None, eps: float | None = None, weight_decay: float | None = None) -> list[dict[str, Any]]:
        """Groups for a torch optimizer: first what the schemes wish nothing for, then what they do.

        With the base values that the optimizer itself gets, a group holds its own "lr", "eps" and "weight_decay" where they differ; without them the
        factors "lr_scale", "eps_scale", "weight_decay_scale".
        """
        return groups(self, self._own(), lr, eps, weight_decay)

    def advance(self, steps: int = 1) -> None:
        """Tells the schemes that the optimizer has made steps; call it after `optimizer.step()` where a scheme changes over training."""
        for layer in self._own():
            layer.scheme.advance(steps)

    def extra_repr(self) -> str:
        """What is kept for backward, where it is not all."""
        return "" if self.activations == "stored" else f"activations={self.activations!r}"


def _rates(drop_path: float | Sequence[float], depth: int, per_block: int) -> list[float]:
    """The probability of each sublayer; both of a block have the same."""
    if isinstance(drop_path, Sequence):
        if len(drop_path) != depth:
            raise SchemeError(f"{len(drop_path)} values of drop_path for {depth} branches; give one for each, or one number")
        return list(drop_path)
    blocks = -(-depth // per_block)
    return [drop_path * (k // per_block + 1) / blocks for k in range(depth)]


def _activations(wanted: str | None, last: Sublayer) -> str:
    if wanted is None:
        return "reversed" if last.scheme.reversible else "stored"
    if wanted not in ACTIVATIONS:
        raise SchemeError(f"activations is {wanted!r}; wanted one of {', '.join(ACTIVATIONS)}")
    if wanted == "reversed" and not last.scheme.reversible:
        raise SchemeError(f"scheme {last.scheme.name()} cannot be undone, so its stack cannot run backwards; "
                          'choose activations="recomputed" or a reversible scheme')
    return wanted
