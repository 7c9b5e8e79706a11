"""x0_lambdas: before each block the stream is mixed with the input of the stack, by two learned scalars.

    read, first sublayer of a block:    h <- r h + z x_0, then N(h)
    read, other sublayers:              N(h)                              write(h, y) = h + y          after the stack: a final norm

x_0 is what enters the stack; the sources norm the embedding first (`input_norm`).

    start        r                        z                         source
    plain        1                        0                         modded-nanogpt: the start is pre_norm
    decaying     1.15 to 1.05             0.20 to 0.05              nanochat: linear over the blocks

r multiplies the stream once a block, so it moves it as a power of the depth: it wants a learning rate 100 times smaller (`rates`). Depth is
counted in blocks. Parameters: one norm a sublayer, two scalars a block. Cost a token: reads 4 dim and writes 2.5 dim at two sublayers a block;
x_0 is kept.
Source: Jordan et al., modded-nanogpt, 2024, github.com/KellerJordan/modded-nanogpt; Karpathy, nanochat, 2025, github.com/karpathy/nanochat.
"""

from torch import Tensor

from skipway._errors import SchemeError
from skipway.schemes._base import Scheme, Traffic

State = tuple[Tensor, Tensor]           # h, x_0


class X0Lambdas(Scheme):
    """r h + z x_0 before each block of pre-norm. Options: start ("plain", "decaying"), input_norm (a norm on what enters the stack)."""

    placement = "pre"
    at_start = "pre_norm"
    final_norm = True

    def build(self, start: str = "plain", input_norm: bool = False) -> None:
        if start not in ("plain", "decaying"):
            raise SchemeError(f"scheme x0_lambdas: start is {start!r}; wanted plain or decaying")
        self.norm = self.make_norm(self.dim)
        self.input_norm = self.make_norm(self.dim) if input_norm and self.first else None
        self.begins = self.index % self.per_block == 0
        if self.begins:
            way = self.block / max(self.blocks - 1, 1) if start == "decaying" else 0.0
            self.residual = self.vector(1.0 if start == "plain" else 1.15 - 0.10 * way, 1)
            self.input = self.vector(0.0 if start == "plain" else 0.20 - 0.15 * way, 1)
        self.traffic = Traffic(3 + 2 * self.begins, 2 + self.begins)

    def enter(self, x: Tensor) -> State:
        x = x if self.input_norm is None else self.input_norm(x)
        return x, x

    def read(self, stream: State) -> tuple[Tensor, Tensor]:
        h, x0 = stream
        if self.begins:
            h = (self.residual + self.input) * h if self.first else self.residual * h + self.input * x0      # at the first block h is x_0
        return self.norm(h), h

    def write(self, stream: State, y: Tensor, memo: Tensor) -> State:
        return memo + y, stream[1]

    def leave(self, stream: State) -> Tensor:
        return stream[0]

    def rates(self) -> dict[str, float]:
        return {"residual": 0.01} if self.begins else {}
