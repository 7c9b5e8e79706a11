"""mudd: each block reads its queries, keys, values and residual as four weighted sums over the states after earlier blocks, made for each token.

    before block i > 0, with X_0 the input of the stack and X_1, ..., X_i the states after the blocks before it:
        c = q, k, v, r:     x^c = sum_{j <= i} A^c_j X_j          A^c = (W2 gelu(W1 u))^c + a^c          u = X_i / rms(X_i)
        attention:          read = N_q(x^q), N_k(x^k), N_v(x^v)          write(y) = x^r + y
    other sublayers of the block:           read(h) = N(h)          write(h, y) = h + y
    after the last block:                   one more sum, and a final norm

Where the first sublayer of a block is no self-attention, it has two ways, its input and the residual. W1 has as many rows as there are weights, W2
starts at zero, W1 normal with std dim^-0.5, a at 1 for X_i and 0 for the others, so that the start is pre_norm. dynamic=False leaves a alone.
Depth is counted in blocks. Parameters: for w ways, (w (i + 1)) (dim + w (i + 1)) + w (i + 1) before block i. Cost a token: reads about i + 1 dim
more a block, writes w; every X_j is kept. The paper found deep nets to want norms around the sum, which are not built here.
Source: Xiao et al., MUDDFormer, 2025, arXiv 2502.12170, equations 5 to 8.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skipway.ops._autocast import product
from skipway.ops.mix import mix
from skipway.ops.rms_linear import rms_linear
from skipway.schemes._base import Scheme, Traffic

State = tuple[Tensor, ...]              # the stream, then X_0, X_1, ...


class Mudd(Scheme):
    """Multiway dynamic dense reads. Options: dynamic, eps of the norm of u."""

    placement = "pre"
    at_start = "pre_norm"
    final_norm = True

    def build(self, dynamic: bool = True, eps: float = 1e-6) -> None:
        self.begins = self.index % self.per_block == 0 and self.block > 0
        self.ends = (self.index + 1) % self.per_block == 0 or self.last
        split = self.begins and self.role == "self_attention"
        self.norm = nn.ModuleList(self.make_norm(self.dim) for _ in range(3 if split else 1))
        if self.begins:
            self.reader = _Sums(self.dim, 4 if split else 2, self.block + 1, dynamic, eps)
        if self.last:
            self.leaver = _Sums(self.dim, 1, self.block + 2, dynamic, eps)
        ways = len(self.norm) + self.begins
        self.traffic = Traffic(3 + self.begins * (self.block + 1 + ways), 2 + self.begins * ways)

    def enter(self, x: Tensor) -> State:
        return x, x

    def read(self, stream: State) -> tuple[Any, Tensor]:
        if not self.begins:
            return self.norm[0](stream[0]), stream[0]
        *ways, residual = self.reader(stream[1:])
        inputs = [norm(x) for norm, x in zip(self.norm, ways)]
        return (inputs[0] if len(inputs) == 1 else tuple(inputs)), residual

    def write(self, stream: State, y: Tensor, memo: Any) -> State:
        h = memo + y
        return (h, *stream[1:], h) if self.ends else (h, *stream[1:])

    def leave(self, stream: State) -> Tensor:
        return self.leaver(stream[1:])[0]

    def no_decay(self) -> tuple[str, ...]:
        return tuple(name for name, p in self.named_parameters() if p.ndim < 2 or name.endswith("static"))


class _Sums(nn.Module):
    """Weighted sums over states, one for each way."""

    def __init__(self, dim: int, ways: int, states: int, dynamic: bool, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.static = nn.Parameter(F.one_hot(torch.tensor(states - 1), states).float().repeat(ways, 1))
        if dynamic:
            self.w1 = nn.Parameter(dim ** -0.5 * torch.randn(ways * states, dim))
            self.w2 = nn.Parameter(torch.zeros(ways * states, ways * states))
        self.dynamic = dynamic

    def forward(self, states: State) -> Tensor:
        weights = self.static
        if self.dynamic:
            hidden = F.gelu(rms_linear(states[-1], self.w1, self.eps)[0])
            weights = product(hidden, self.w2.to(hidden.dtype).mT).unflatten(-1, weights.shape) + weights
        return mix(torch.stack(states), weights)
