"""gated_residual: unmixed lanes that are read channel by channel through a low-rank gate.

    u_i = g_i * H_i / rms(H_i)          u = concat_i u_i          i, j = 1..n
    read(H) = mean_i sigmoid(U silu(D u / n))_i * u_i          write(H, y)_j = H_j + 2 sigmoid(W u / n)_j y

The gate has one number for each lane and channel; U is (n dim, rank), D (rank, n dim), W (n, n dim), g_i gains of width dim that start at 1. Lanes
are born as n copies and left by one more read; what is read is normed lane by lane, so neither the branch nor the head wants another norm.
U, D and W start normal with std 0.02: they part the lanes, and the gates start near 1/2 and 1. The norm and gates are float32 at least.
Parameters: n dim (2 rank + n + 1) a sublayer, n dim (2 rank + 1) at the end. Cost a token: reads 5n + 1 dim, writes 2n + 1 dim.
Source: Qwen team, 2026, arXiv 2608.30320, and transformers 5.24, models/qwen4_exp.
"""

from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import SchemeError
from skipway.ops.gated_read import gated_read
from skipway.ops.write_lanes import write_lanes
from skipway.schemes._base import Scheme, Traffic
from skipway.schemes._lanes import born, several


class GatedResidual(Scheme):
    """Lanes read by channel. Options: lanes, rank of the read gate (default: dim / 8, at least 1), eps of the norm."""

    placement = "pre"

    def build(self, lanes: int = 4, rank: int | None = None, eps: float = 1e-6) -> None:
        n = self.lanes = several(self, lanes)
        rank = max(1, self.dim // 8) if rank is None else rank
        if rank < 1:
            raise SchemeError(f"scheme gated_residual: rank is {rank}; wanted 1 or more")
        self.eps = eps
        self.reader = _Reader(n, self.dim, rank, eps)
        self.inject = nn.Parameter(0.02 * torch.randn(n, n * self.dim))
        if self.last:
            self.leaver = _Reader(n, self.dim, rank, eps)
        self.traffic = Traffic(5 * n + 1, 2 * n + 1)

    def enter(self, x: Tensor) -> Tensor:
        return born(x, self.lanes)

    def read(self, stream: Tensor) -> tuple[Tensor, Tensor]:
        x, t = self.reader(stream, self.inject)
        return x.to(stream.dtype), 2 * t.sigmoid()

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return write_lanes(stream, y, memo)

    def leave(self, stream: Tensor) -> Tensor:
        return self.leaver(stream)[0].to(stream.dtype)


class _Reader(nn.Module):
    """The gated mean of the normed lanes, and a linear function of them, W u / n, where W is given."""

    def __init__(self, lanes: int, dim: int, rank: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.ones(lanes, dim))
        self.down = nn.Parameter(0.02 * torch.randn(rank, lanes * dim))
        self.up = nn.Parameter(0.02 * torch.randn(lanes * dim, rank))

    def forward(self, stream: Tensor, inject: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        return gated_read(stream, self.gain, self.down, self.up, inject, self.eps)
