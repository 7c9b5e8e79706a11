"""The feed-forward branch."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from skipway._errors import UsageError

Activation = Callable[[Tensor], Tensor]
TANH: Activation = partial(F.gelu, approximate="tanh")


def _quick(x: Tensor) -> Tensor:
    return x * (1.702 * x).sigmoid()


KINDS: dict[str, tuple[Activation, bool]] = {                # the activation, and whether it gates a second projection
    "gelu": (F.gelu, False), "gelu_tanh": (TANH, False), "relu": (F.relu, False), "relu2": (lambda x: F.relu(x).square(), False),
    "silu": (F.silu, False), "gelu_quick": (_quick, False),
    "swiglu": (F.silu, True), "geglu": (F.gelu, True), "geglu_tanh": (TANH, True), "reglu": (F.relu, True), "geglu_quick": (_quick, True),
}


def activation(kind: str) -> tuple[Activation, bool]:
    """The function of a kind, and whether it gates. Raises UsageError."""
    if kind not in KINDS:
        raise UsageError(f"unknown kind {kind!r} of a feed-forward; wanted one of {', '.join(KINDS)}")
    return KINDS[kind]


def gated(function: Activation, gate: Tensor, x: Tensor, limit: float | None, shift: float) -> Tensor:
    """f(g) (x + shift), with g <= limit and |x| <= limit where there is one."""
    if limit is not None:
        gate, x = gate.clamp(max=limit), x.clamp(-limit, limit)
    return function(gate) * (x + shift if shift else x)


class FeedForward(nn.Module):
    """W_out f(W_in x), or, for the gated kinds, W_out (f(W_gate x) * W_in x): a branch.

    dim, hidden     width of the stream; width between (default 4 dim)
    kind            gelu, gelu_tanh, gelu_quick (x sigmoid(1.702 x)), relu, relu2, silu; gated: swiglu, geglu, geglu_tanh, geglu_quick, reglu
    bias, dropout   on all projections; of what the last one reads
    limit           of a gated kind: W_gate x is at most this, W_in x between it and its negative (gpt-oss: 7)
    shift           of a gated kind: added to W_in x (gpt-oss: 1)

    Raises UsageError for an unknown kind, and for a limit or a shift of one that does not gate.
    """

    role: ClassVar[str] = "ffn"

    def __init__(self, dim: int, hidden: int | None = None, kind: str = "gelu", *, bias: bool = True, dropout: float = 0.0,
                 limit: float | None = None, shift: float = 0.0) -> None:
        super().__init__()
        self.function, gates = activation(kind)
        if not gates and (limit is not None or shift):
            raise UsageError(f"a feed-forward of kind {kind!r} with limit={limit}, shift={shift}; those are for the gated kinds")
        self.kind, hidden, self.limit, self.shift = kind, 4 * dim if hidden is None else hidden, limit, shift
        self.input = nn.Linear(dim, hidden, bias)
        self.gate = nn.Linear(dim, hidden, bias) if gates else None
        self.output = nn.Linear(hidden, dim, bias)
        self.dropout = nn.Dropout(dropout) if dropout else None
        self.inner: nn.Module | None = None

    def weights(self, kind: str) -> Iterable[Tensor]:
        """Its matrices by kind: input, gate, output."""
        found = getattr(self, kind) if kind in ("input", "gate", "output") else None
        return [] if found is None else [found.weight]

    def inner_norm(self, make: Callable[[int], nn.Module]) -> None:
        """Puts a norm before the output projection."""
        self.inner = make(self.output.in_features)

    def forward(self, x: Tensor) -> Tensor:
        """(..., dim) -> (..., dim)."""
        y = self.input(x)
        y = self.function(y) if self.gate is None else gated(self.function, self.gate(x), y, self.limit, self.shift)
        if self.dropout is not None:
            y = self.dropout(y)
        return self.output(y if self.inner is None else self.inner(y))

    def extra_repr(self) -> str:
        """The kind."""
        return self.kind
