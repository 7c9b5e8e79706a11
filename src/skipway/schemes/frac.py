"""frac: frac-connections, hyper-connections whose lanes are the m fractions of one stream of the same width.

    h = (H_1, ..., H_m), each of width dim / m
    read(h) = N(concat_j sum_i Y_ij H_i)          write(h, y)_j = sum_i A_ij H_i + b_j y_j          y = (y_1, ..., y_m)

    static      Y = A = I, b = 1 at the start, learned
    dynamic     Y_ij + s_r tanh(u_i . V_j), A_ij + s_r tanh(u_i . W_j), b_i + s_w tanh(u_i . v), with u_i = H_i / rms(H_i), V = W = v = 0 and
                s_r = s_w = 0.01 at the start

Each fraction is written with its own fraction of y. Start: pre_norm. Parameters: 2 m^2 + m a sublayer, dynamic also (2m + 1) dim / m + 2, and one
norm.
Cost a token: reads 5 dim (dynamic 6), writes 3 dim. No weight decay on the static part. Lanes are (m, ..., dim / m).
Source: Zhu et al., Frac-Connections, 2025, arXiv 2503.14125.
"""

from typing import Any

import torch
from torch import Tensor, nn

from skipway.ops.mix import mix
from skipway.ops.rms_linear import rms_linear
from skipway.schemes._base import Scheme, Traffic


class Frac(Scheme):
    """Frac-connections. Options: fractions (a divisor of dim), dynamic, eps of the gates' norm."""

    placement = "pre"
    at_start = "pre_norm"
    final_norm = True

    def build(self, fractions: int = 4, dynamic: bool = True, eps: float = 1e-6) -> None:
        m, width = fractions, self.divided(fractions, "fractions")
        self.lanes, self.dynamic, self.eps = m, dynamic, eps
        self.norm = self.make_norm(self.dim)
        self.reader, self.mixer = nn.Parameter(torch.eye(m)), nn.Parameter(torch.eye(m))        # from fraction i to fraction j
        self.write_weight = self.vector(1.0, m)
        if dynamic:
            self.gates = self.vector(0.0, 2 * m + 1, width)     # reader and mixer to each fraction, write
            self.read_scale, self.write_scale = self.vector(0.01, 1), self.vector(0.01, 1)
        self.traffic = Traffic(6 if dynamic else 5, 3)

    def enter(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.lanes, -1)).movedim(-2, 0)

    def weights(self, stream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Y and A to fraction j from fraction i (m, m), b (m,), each behind the token's axes where they are dynamic."""
        if not self.dynamic:
            return self.reader.mT, self.mixer.mT, self.write_weight
        gates = rms_linear(stream.movedim(0, -2), self.gates, self.eps).tanh()
        reader, mixer = (gates[..., :-1] * self.read_scale).chunk(2, -1)
        return (self.reader + reader).mT, (self.mixer + mixer).mT, self.write_weight + gates[..., -1] * self.write_scale

    def read(self, stream: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        reader, mixer, b = self.weights(stream)
        return self.norm(self.leave(mix(stream, reader))), (mixer, b)

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        mixer, b = memo
        return mix(stream, mixer) + (y.unflatten(-1, (self.lanes, -1)) * b.to(y.dtype).unsqueeze(-1)).movedim(-2, 0)

    def leave(self, stream: Tensor) -> Tensor:
        return stream.movedim(0, -2).flatten(-2)

    def no_decay(self) -> tuple[str, ...]:
        return tuple(name for name, p in self.named_parameters() if p.ndim < 2 or name in ("reader", "mixer"))
