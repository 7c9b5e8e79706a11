"""unet_skips: what stood behind a block of the first half joins again before the mirrored block of the second half.

    before block j of the second half:    h <- h + w_j X_i  ("add"),  or  h <- W [h; X_i] + b  ("linear"),    i = N - 1 - j

with X_i the stream after block i; every sublayer is h + F(N(h)), and a final norm follows. `middle` blocks in the middle have no partner: by default
1 of an odd N and 2 of an even one, because with none the first join would add the stream to itself. (modded-nanogpt does that: middle=0.)
Depth is counted in blocks. Parameters: one norm a sublayer; a scalar (start, 1) or 2 dim^2 + dim a pair. Cost: the first half's states are kept.
Source: Ronneberger, Fischer, Brox, U-Net, 2015, arXiv 1505.04597; linear: Bao et al., All are Worth Words (U-ViT), 2022, arXiv 2209.12152;
add: Jordan et al., modded-nanogpt, 2024.
"""

import torch
from torch import Tensor, nn

from skipway._errors import SchemeError
from skipway.schemes._base import Scheme, Traffic

State = tuple[Tensor, ...]              # the stream, then X_0, X_1, ... that were not taken yet


class UnetSkips(Scheme):
    """Long skips between mirrored blocks. Options: middle, join ("add" or "linear"), start (of the scalar)."""

    placement = "pre"
    final_norm = True
    needs_depth = True

    def build(self, middle: int | None = None, join: str = "add", start: float = 1.0) -> None:
        if join not in ("add", "linear"):
            raise SchemeError(f"scheme unet_skips: join is {join!r}; wanted add or linear")
        middle = 2 - self.blocks % 2 if middle is None else middle
        if middle < 0 or (self.blocks - middle) % 2 or middle > self.blocks:
            raise SchemeError(f"scheme unet_skips: {self.blocks} blocks with {middle} in the middle leave no two equal halves; "
                              f"choose a middle of {self.blocks % 2}, {self.blocks % 2 + 2}, ...")
        pairs = (self.blocks - middle) // 2
        starts, ends = self.index % self.per_block == 0, (self.index + 1) % self.per_block == 0
        self.norm = self.make_norm(self.dim)
        self.keeps = ends and self.block < pairs
        self.mirrors = starts and self.block >= self.blocks - pairs
        self.merge = nn.Linear(2 * self.dim, self.dim) if self.mirrors and join == "linear" else None
        if self.mirrors and join == "add":
            self.weight = self.vector(start, 1)
        self.traffic = Traffic(3 + 2 * self.mirrors, 2 + self.mirrors)

    def enter(self, x: Tensor) -> State:
        return (x,)

    def read(self, stream: State) -> tuple[Tensor, State]:
        h, *states = stream
        if self.mirrors:
            state = states.pop()
            h = self.merge(torch.cat([h, state], -1)) if self.merge is not None else h + self.weight * state
        return self.norm(h), (h, *states)

    def write(self, stream: State, y: Tensor, memo: State) -> State:
        h, *states = memo
        h = h + y
        return (h, *states, h) if self.keeps else (h, *states)

    def leave(self, stream: State) -> Tensor:
        return stream[0]
