"""mhc: manifold-constrained hyper-connections. The lanes are mixed by a doubly stochastic matrix that is made for each token.

    read(H) = N(sum_i p_i H_i)          write(H, y)_j = sum_i R_ji H_i + q_j y          i, j = 1..n
    p = sigmoid(s_p P u + c_p)          q = 2 sigmoid(s_q Q u + c_q)          R = sinkhorn(s_r mat(M u) + C)          u = vec(H) / rms(vec(H))

sinkhorn(Z): exp(Z), then `iterations` times columns and rows divided by their sums, rows last. The paper starts s at 0.01 and leaves P, Q, M, c
and C open. Here (docs/decisions/0008): P, Q, M normal with std `phi`; C = `mixer` times I, so that the lanes are kept apart; c_q = 0, so that q is
near 1; c_p = ln(3 (n - 1)) for lane k mod n and -ln(3 (n - 1)) for the others (start="turns"), so that lanes are read in turn, or -ln(n - 1) for
all (start="even"). Lanes are born as n copies and left as their mean, or by a gate of the form of p with s = 1 (leave="gated").
Gates and mixer are float32 at least. floor > 0 (DeepSeek-V4: 1e-6) is added to p, also in the gate that leaves, to the entries of the mixer after
the first division by columns, and to every sum that it is divided by. convention="transposed" takes M and C
with the axes of R exchanged (from lane i to lane j), as DeepSeek-V4, GLM-5-next and hyper-connections keep them; the function is the same.
Parameters: n dim (n^2 + 2n) + n^2 + 2n + 3 a sublayer and one norm; gated, n^2 dim + n + 1 at the end. Cost a token: reads 3n + 2 dim, writes n +
2 dim.
Source: Xie et al., mHC: Manifold-Constrained Hyper-Connections, 2025, arXiv 2512.24880, equations 3 to 8.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import SchemeError
from skipway.ops.lane_read import lane_read
from skipway.ops.read_lanes import read_lanes
from skipway.ops.rms_linear import lane_gates
from skipway.ops.write_over import write_over
from skipway.schemes._base import Scheme, Traffic
from skipway.schemes._lanes import born, one_of, several


class ManifoldHyper(Scheme):
    """Manifold-constrained lanes. Options: lanes, iterations, convention ("paper" or "transposed"), leave ("mean" or "gated"), floor, eps of the
    gates' norm; for the start: phi, alpha, mixer, start ("turns" or "even")."""

    placement = "pre"
    final_norm = True

    def build(self, lanes: int = 4, iterations: int = 20, convention: str = "paper", leave: str = "mean", phi: float = 0.02, alpha: float = 0.01,
              mixer: float = 8.0, start: str = "turns", eps: float = 1e-6, floor: float = 0.0) -> None:
        n = self.lanes = several(self, lanes)
        if iterations < 1:
            raise SchemeError(f"scheme mhc: iterations is {iterations}; wanted 1 or more, the paper takes 20")
        self.transposed = one_of(self, "convention", convention, "paper", "transposed") == "transposed"
        self.iterations, self.eps, self.floor = iterations, eps, floor
        self.norm = self.make_norm(self.dim)
        read = torch.full((n,), -math.log(n - 1))
        if one_of(self, "start", start, "turns", "even") == "turns":
            read = math.log(3 * (n - 1)) * (2 * torch.eye(n)[self.index % n] - 1)
        self.phi = nn.Parameter(phi * torch.randn(2 * n + n * n, n * self.dim))         # read, write, mixer
        self.bias = nn.Parameter(torch.cat([read, torch.zeros(n), mixer * torch.eye(n).flatten()]))
        self.alpha = self.vector(alpha, 3)
        self.gated = one_of(self, "leave", leave, "mean", "gated") == "gated" and self.last
        if self.gated:
            self.leave_phi = nn.Parameter(phi * torch.randn(n, n * self.dim))
            self.leave_bias, self.leave_alpha = self.vector(-math.log(n - 1), n), self.vector(1.0, 1)
        self.traffic = Traffic(3 * n + 2, n + 2)

    def enter(self, x: Tensor) -> Tensor:
        return born(x, self.lanes)

    def read(self, stream: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        x, q, mixed = lane_read(stream, self.phi, self.alpha, self.bias, self.eps, (self.floor, 0.0), (self.iterations, self.floor, self.transposed))
        return self.norm(x), (mixed, q)

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        mixed, q = memo
        return write_over(mixed, y, q)

    def leave(self, stream: Tensor) -> Tensor:
        if not self.gated:
            return stream.mean(0)
        z, lanes = lane_gates(stream, self.leave_phi, self.eps)
        return read_lanes(lanes, (z * self.leave_alpha + self.leave_bias).sigmoid() + self.floor)[0]
