"""review_gate: a gate that sees the stream and the update scales the update, a factor a channel (Review Residuals).

    read(h) = N(h)          write(h, y) = h + r y          r = sigmoid(W [R(h), R(y)])          after the stack: a final norm

R divides by the root mean square and has no gain (W can hold one). The paper gives no start for W: here W = 0, so that every gate starts at 1/2 and
no channel is favoured by chance; start="linear" starts W as nn.Linear does. Parameters: one norm, 2 dim^2 a sublayer. Cost a token: reads 8 dim,
writes 5 dim, and 2 dim^2 multiplications.
Source: Kramer, Review Residuals: Update-Conditioned Residual Gating for Transformers, 2026, arXiv 2606.31859.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm

from skipway._errors import SchemeError
from skipway.schemes._base import Scheme, Traffic

EPS = 1e-6


class ReviewGate(Scheme):
    """h + r F(N(h)). Options: start of W ("zero", "linear")."""

    placement = "pre"
    final_norm = True
    traffic = Traffic(8, 5)

    def build(self, start: str = "zero") -> None:
        if start not in ("zero", "linear"):
            raise SchemeError(f"scheme review_gate: start is {start!r}; wanted zero or linear")
        self.norm = self.make_norm(self.dim)
        self.gate = nn.Linear(2 * self.dim, self.dim, bias=False)
        if start == "zero":
            nn.init.zeros_(self.gate.weight)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return self.norm(stream), None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        seen = torch.cat([rms_norm(stream, (self.dim,), eps=EPS), rms_norm(y, (self.dim,), eps=EPS).to(stream.dtype)], -1)
        return stream + torch.sigmoid(self.gate(seen)) * y
