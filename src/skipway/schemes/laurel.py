"""laurel: learned augmented residual. The shortcut is more than the identity: weights, a low-rank map, earlier states.

    read(h) = N(h)          write(h, y) = alpha y + g(h)
    kind="rw"       alpha, beta = 2 softmax(w)      g = beta h                          w = 0 at the start: both are 1
    kind="lr"       alpha = 1                       g = h + A B h                       A = 0 at the start
    kind="pa"       alpha = 1                       g = h + sum_j gamma_j A B h_j       h_j: this state and those before earlier sublayers;
                                                                                        gamma = 1, A = 0 at the start
    kind="gemma3n"  x = N(h):  write = (h + N2(y) + x + N3(A B x)) / sqrt(2)

A is (dim, rank), B (rank, dim), normal with std dim^-0.5. Start: pre_norm, but for gemma3n, which sums two streams and divides by sqrt(2). The
paper bounds alpha and beta by a softmax or a sigmoid; the factor 2 keeps the start plain.
Parameters: 2 a sublayer (rw), 2 rank dim (lr, gemma3n), and one a source (pa); one norm, gemma3n three. Cost a token: reads 4 dim, writes 3 dim
(rw as pre_norm; pa reads one more for each source, and every state is kept).
Source: Menghani, Kumar and Kumar, LAuReL, 2024, arXiv 2411.07501; gemma3n: transformers 5.24, models/gemma3n.
"""

from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import SchemeError
from skipway.schemes._base import Scheme, Traffic
from skipway.schemes._lanes import one_of


class Laurel(Scheme):
    """Learned augmented residual. Options: kind ("lr", "rw", "pa" or "gemma3n"), rank."""

    placement = "pre"
    at_start = "pre_norm"
    final_norm = True

    def build(self, kind: str = "lr", rank: int = 64) -> None:
        self.kind = one_of(self, "kind", kind, "lr", "rw", "pa", "gemma3n")
        if rank < 1:
            raise SchemeError(f"scheme laurel: rank is {rank}; wanted 1 or more")
        self.norm = self.make_norm(self.dim)
        if kind == "rw":
            self.weight = self.vector(0.0, 2)
        else:
            self.down = nn.Parameter(self.dim ** -0.5 * torch.randn(rank, self.dim))
            self.up = self.vector(0.0, self.dim, rank)
        if kind == "pa":
            self.gamma = self.vector(1.0, self.index + 1)
        if kind == "gemma3n":
            self.out_norm, self.low_norm = self.make_norm(self.dim), self.make_norm(self.dim)
        self.traffic = {"rw": Traffic(3, 2), "lr": Traffic(4, 3), "pa": Traffic(4 + self.index, 3), "gemma3n": Traffic(8, 5)}[kind]

    def enter(self, x: Tensor) -> Any:
        return (x,) if self.kind == "pa" else x

    def read(self, stream: Any) -> tuple[Tensor, Tensor]:
        x = self.norm(stream[-1] if self.kind == "pa" else stream)
        return x, x

    def low(self, h: Tensor) -> Tensor:
        """A B h."""
        return nn.functional.linear(nn.functional.linear(h, self.down), self.up).to(h.dtype)

    def write(self, stream: Any, y: Tensor, memo: Any) -> Any:
        if self.kind == "rw":
            alpha, beta = 2 * self.weight.softmax(0)
            return beta * stream + alpha * y
        if self.kind == "lr":
            return stream + (self.low(stream) + y)
        if self.kind == "pa":
            past = torch.stack([g * h for g, h in zip(self.gamma, stream)]).sum(0)
            return *stream, stream[-1] + (self.low(past) + y)
        return (stream + self.out_norm(y) + (memo + self.low_norm(self.low(memo)))) / 2 ** 0.5

    def leave(self, stream: Any) -> Tensor:
        return stream[-1] if self.kind == "pa" else stream
