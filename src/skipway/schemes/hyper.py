"""hyper: hyper-connections. The stream has n lanes; a sublayer reads a weighted sum of them, mixes them and writes to each.

    read(H) = N(sum_i a_i H_i)          write(H, y)_j = sum_i A_ij H_i + b_j y          i, j = 1..n

    static      a = e_(k mod n), A = I, b = 1 at the start, learned
    dynamic     a_i + s_a tanh(u_i . w), A_ij + s_a tanh(u_i . W_j), b_i + s_b tanh(u_i . v), with u_i = H_i / rms(H_i), w = W = v = 0 and
                s_a = s_b = 0.01 at the start

k is the number of the sublayer from 0. Lanes are born as n copies and left as their mean (leave="sum": as their sum, the paper's way; behind a final
norm both are one function, and the mean keeps the stream's scale without one). A gain in the norm of u would be absorbed by w, W and v, so it has
none. Start: pre_norm. Lanes part because they are read in turn.
Parameters: n^2 + 2n a sublayer, dynamic also (n + 2) dim + 2, and one norm. Cost a token: reads 2n + 2 dim (dynamic 3n + 2), writes n + 2 dim.
No weight decay on the static part. The mixers are free: their product over depth may grow, which mhc prevents.
Source: Zhu et al., Hyper-Connections, 2024, arXiv 2409.19606, equations 1 to 13.
"""

from typing import Any

import torch
from torch import Tensor, nn

from skipway.ops.read_mix import read_mix
from skipway.ops.rms_linear import lane_gates
from skipway.ops.write_over import write_over
from skipway.schemes._base import Scheme, Traffic
from skipway.schemes._lanes import born, one_of, several


class Hyper(Scheme):
    """Hyper-connections. Options: lanes, dynamic, leave ("mean" or "sum"), eps of the gates' norm."""

    placement = "pre"
    at_start = "pre_norm"
    final_norm = True

    def build(self, lanes: int = 4, dynamic: bool = True, leave: str = "mean", eps: float = 1e-6) -> None:
        n = self.lanes = several(self, lanes)
        self.mean = one_of(self, "leave", leave, "mean", "sum") == "mean"
        self.dynamic, self.eps = dynamic, eps
        self.norm = self.make_norm(self.dim)
        self.read_weight = nn.Parameter(torch.eye(n)[self.index % n].clone())
        self.mixer = nn.Parameter(torch.eye(n))             # from lane i to lane j
        self.write_weight = self.vector(1.0, n)
        if dynamic:
            self.gates = self.vector(0.0, n + 2, self.dim)  # read, mixer to each lane, write
            self.read_scale, self.write_scale = self.vector(0.01, 1), self.vector(0.01, 1)
        self.traffic = Traffic((3 if dynamic else 2) * n + 2, n + 2)

    def enter(self, x: Tensor) -> Tensor:
        return born(x, self.lanes, shared=not self.dynamic)

    def read(self, stream: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        a: Tensor = self.read_weight
        mixer: Tensor = self.mixer
        b: Tensor = self.write_weight
        if self.dynamic:
            z, stream = lane_gates(stream, self.gates, self.eps)
            gates = z.tanh()
            moving = gates[..., :-1] * self.read_scale
            a, mixer, b = a + moving[..., 0], mixer + moving[..., 1:], b + gates[..., -1] * self.write_scale
        x, mixed = read_mix(stream, a, mixer.mT)
        return self.norm(x), (mixed, b)

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        mixed, b = memo
        return write_over(mixed, y, b)

    def leave(self, stream: Tensor) -> Tensor:
        return stream.mean(0) if self.mean else stream.sum(0)

    def no_decay(self) -> tuple[str, ...]:
        return tuple(name for name, p in self.named_parameters() if p.ndim < 2 or name == "mixer")
