"""identity_hyper: hyper-connections whose lanes are not mixed; what is read and where it is written depends on all lanes.

    read(H) = N(sum_i p_i H_i)          write(H, y)_j = H_j + q_j y          i, j = 1..n
    p = sigmoid(s_p P u + c_p) + 1e-6          q = 2 sigmoid(s_q Q u + c_q) + 1e-6          u = vec(H) / rms(vec(H))

At the start P and Q are normal with std 0.02, s_p = s_q = 0.01, c_p = -ln(n - 1), so that p is near 1 / n, and c_q = 0, so that q is near 1. Lanes
are born as n copies and left by a gate of the same form as p (leave="gated"), or as their mean. The random P and Q are what lets the lanes part.
The gates are float32 at least. Parameters: 2 n^2 dim + 2n + 2 a sublayer and one norm; gated, n^2 dim + n + 1 at the end.
Cost a token: reads 3n + 2 dim, writes n + 2 dim.
Source: Tencent, Hy4, 2026, as in transformers 5.24, models/hy_v4; the mixer was found dispensable in several comparisons of 2026.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from skipway.ops.lane_read import lane_read
from skipway.ops.read_lanes import read_lanes
from skipway.ops.rms_linear import lane_gates
from skipway.ops.write_lanes import write_lanes
from skipway.schemes._base import Scheme, Traffic
from skipway.schemes._lanes import born, one_of, several

LEAST = 1e-6            # of a gate, as in the released model


class IdentityHyper(Scheme):
    """Unmixed lanes. Options: lanes, leave ("gated" or "mean"), eps of the gates' norm."""

    placement = "pre"
    final_norm = True

    def build(self, lanes: int = 4, leave: str = "gated", eps: float = 1e-6) -> None:
        n = self.lanes = several(self, lanes)
        one_of(self, "leave", leave, "gated", "mean")
        self.eps = eps
        self.norm = self.make_norm(self.dim)
        self.phi = nn.Parameter(0.02 * torch.randn(2 * n, n * self.dim))        # read, write
        self.bias = nn.Parameter(torch.cat([torch.full((n,), -math.log(n - 1)), torch.zeros(n)]))
        self.alpha = self.vector(0.01, 2)
        if self.last and leave == "gated":
            self.leave_phi = nn.Parameter(0.02 * torch.randn(n, n * self.dim))
            self.leave_bias, self.leave_alpha = self.vector(-math.log(n - 1), n), self.vector(0.01, 1)
        self.gated = self.last and leave == "gated"
        self.traffic = Traffic(3 * n + 2, n + 2)

    def enter(self, x: Tensor) -> Tensor:
        return born(x, self.lanes)

    def read(self, stream: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        x, q, lanes = lane_read(stream, self.phi, self.alpha, self.bias, self.eps, (LEAST, LEAST))
        return self.norm(x), (lanes, q)

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        lanes, q = memo
        return write_lanes(lanes, y, q)

    def leave(self, stream: Tensor) -> Tensor:
        if not self.gated:
            return stream.mean(0)
        z, lanes = lane_gates(stream, self.leave_phi, self.eps)
        return read_lanes(lanes, (z * self.leave_alpha + self.leave_bias).sigmoid() + LEAST)[0]
