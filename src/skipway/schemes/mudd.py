"""mudd: each block reads its queries, keys, values and residual as four weighted sums over the states after earlier blocks, made for each token.

    before block i > 0, with X_0 the input of the stack and X_1, ..., X_i the states after the blocks before it:
        c = q, k, v, r:     x^c = sum_{j <= i} A^c_j X_j          A^c = (W2 gelu(W1 u))^c + a^c          u = X_i / rms(X_i)
        attention:          read = N_q(x^q), N_k(x^k), N_v(x^v)          write(y) = x^r + y
    other sublayers of the block:           read(h) = N(h)          write(h, y) = h + y
    after the last block:                   one more sum, and a final norm

Where the first sublayer of a block is no self-attention, it has two ways, its input and the residual. W1 has as many rows as there are weights, W2
starts at zero, W1 normal with std dim^-0.5, a at 1 for X_i and 0 for the others, so that the start is pre_norm. dynamic=False leaves a alone.

prepost=True is the paper's variant for nets that are deep for their width (PrePostDANorm), which by default it leaves out, too:

    x^c = X_i + N_c(sum_{j <= i} A^c_j N_j(X_j))          A from X_i as above, a = 0 at the start; gains of N_j at 1, of N_c at 0.001

N_j belongs to the state, which is normed once and kept so; N_c is one for each way (the authors' code has one for the residual alone). The paper
also lets the width of the feed-forwards grow over depth from half to one and a half of itself (equation 9): that is up to the branches.
Depth is counted in blocks. Parameters: for w ways, (w (i + 1)) (dim + w (i + 1)) + w (i + 1) before block i; prepost adds w + 1 norms. Cost a
token: reads about i + 1 dim more a block, writes w; every X_j is kept.
Source: Xiao et al., MUDDFormer, 2025, arXiv 2502.12170, equations 5 to 8, and 10 for prepost.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skipway._errors import SchemeError
from skipway.ops._autocast import product
from skipway.ops.mix import mix
from skipway.ops.rms_linear import rms_linear
from skipway.schemes._base import Scheme, Traffic

State = tuple[Tensor, ...]              # the stream, then X_0, X_1, ..., normed with prepost


class Mudd(Scheme):
    """Multiway dynamic dense reads. Options: dynamic, prepost (norms around the sums), eps of the norm of u."""

    placement = "pre"
    at_start = "pre_norm"
    final_norm = True

    def build(self, dynamic: bool = True, prepost: bool = False, eps: float = 1e-6) -> None:
        self.begins = self.index % self.per_block == 0 and self.block > 0
        self.ends = (self.index + 1) % self.per_block == 0 or self.last
        split = self.begins and self.role == "self_attention"
        self.norm = nn.ModuleList(self.make_norm(self.dim) for _ in range(3 if split else 1))
        make = self._small_norm if prepost else None
        if self.begins:
            self.reader = _Sums(self.dim, 4 if split else 2, self.block + 1, dynamic, eps, make)
        if self.last:
            self.leaver = _Sums(self.dim, 1, self.block + 2, dynamic, eps, make)
        self.input_norm = self.make_norm(self.dim) if prepost and self.first else None
        self.kept_norm = self.make_norm(self.dim) if prepost and self.ends else None
        ways, kept = len(self.norm) + self.begins, prepost and self.ends
        self.traffic = Traffic(3 + self.begins * (self.block + 1 + (1 + 2 * prepost) * ways) + kept, 2 + self.begins * (1 + prepost) * ways + kept)

    def _small_norm(self, dim: int) -> nn.Module:
        norm = self.make_norm(dim)
        if getattr(norm, "weight", None) is None:
            raise SchemeError(f"scheme mudd: prepost starts the gains of its norms at 0.001, and {type(norm).__name__} has none; "
                              "give norm= a norm with gains")
        nn.init.constant_(norm.weight, 1e-3)                # type: ignore[arg-type]
        return norm

    def enter(self, x: Tensor) -> State:
        return x, x if self.input_norm is None else self.input_norm(x)

    def read(self, stream: State) -> tuple[Any, Tensor]:
        if not self.begins:
            return self.norm[0](stream[0]), stream[0]
        *ways, residual = self.reader(stream[1:], stream[0])
        inputs = [norm(x) for norm, x in zip(self.norm, ways)]
        return (inputs[0] if len(inputs) == 1 else tuple(inputs)), residual

    def write(self, stream: State, y: Tensor, memo: Any) -> State:
        h = memo + y
        if not self.ends:
            return h, *stream[1:]
        return h, *stream[1:], h if self.kept_norm is None else self.kept_norm(h)

    def leave(self, stream: State) -> Tensor:
        return self.leaver(stream[1:], stream[0])[0]

    def no_decay(self) -> tuple[str, ...]:
        return tuple(name for name, p in self.named_parameters() if p.ndim < 2 or name.endswith("static"))


class _Sums(nn.Module):
    """Weighted sums over states, one for each way; with `make`, each normed and added to the newest state."""

    def __init__(self, dim: int, ways: int, states: int, dynamic: bool, eps: float, make: Callable[[int], nn.Module] | None) -> None:
        super().__init__()
        self.eps = eps
        self.norm = None if make is None else nn.ModuleList(make(dim) for _ in range(ways))
        newest = F.one_hot(torch.tensor(states - 1), states).float().repeat(ways, 1)
        self.static = nn.Parameter(newest if make is None else torch.zeros_like(newest))
        if dynamic:
            self.w1 = nn.Parameter(dim ** -0.5 * torch.randn(ways * states, dim))
            self.w2 = nn.Parameter(torch.zeros(ways * states, ways * states))
        self.dynamic = dynamic

    def forward(self, states: State, newest: Tensor) -> State:
        """One sum for each way, (..., dim)."""
        weights = self.static
        if self.dynamic:
            hidden = F.gelu(rms_linear(newest, self.w1, self.eps))
            weights = product(hidden, self.w2.to(hidden.dtype).mT).unflatten(-1, weights.shape) + weights
        sums = mix(torch.stack(states), weights)
        return tuple(sums) if self.norm is None else tuple(newest + norm(x) for norm, x in zip(self.norm, sums))
