"""gru_gate: a gated recurrent unit whose state is the stream and whose input is the branch (GTrXL).

    read(h) = N(h)          u = relu(y)          r = sigmoid(W_r u + U_r h)          z = sigmoid(W_z u + U_z h - b)
    c = tanh(W_c u + U_c (r h))          write(h, y) = (1 - z) h + z c

Initial values: b = 2, learned, so that z is about 0.12 and the stack starts near the identity; without it the gate starts half open. The matrices
start as nn.Linear does. Parameters: one norm, 6 dim^2 + dim a sublayer. Cost a token: reads 8 dim, writes 8 dim, and 6 dim^2 multiplications.
Source: Parisotto et al., Stabilizing Transformers for Reinforcement Learning, 2019, arXiv 1910.06764.
"""

from typing import Any

import torch
from torch import Tensor, nn

from skipway.schemes._base import Scheme, Traffic


class GruGate(Scheme):
    """(1 - z) h + z c. Options: bias (start of b), relu (whether the branch passes a ReLU first)."""

    placement = "pre"
    final_norm = True
    traffic = Traffic(8, 8)

    def build(self, bias: float = 2.0, relu: bool = True) -> None:
        self.relu = relu
        self.norm = self.make_norm(self.dim)
        self.from_branch = nn.Linear(self.dim, 3 * self.dim, bias=False)        # W_r, W_z, W_c
        self.from_stream = nn.Linear(self.dim, 2 * self.dim, bias=False)        # U_r, U_z
        self.from_reset = nn.Linear(self.dim, self.dim, bias=False)             # U_c
        self.bias = self.vector(bias)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return self.norm(stream), None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        wr, wz, wc = self.from_branch(torch.relu(y) if self.relu else y).chunk(3, -1)
        ur, uz = self.from_stream(stream).chunk(2, -1)
        z = torch.sigmoid(wz + uz - self.bias)
        c = torch.tanh(wc + self.from_reset(torch.sigmoid(wr + ur) * stream))
        return (1 - z) * stream + z * c
