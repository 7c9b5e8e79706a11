"""t_fixup: a transformer without norms and without warm-up, by its starting weights alone (T-Fixup).

    read(h) = h          write(h, y) = h + y

              gain g on value, output and feed-forward weights          stack
    encoder   0.67 N^(-1/4)                                             encoder of N blocks
    decoder   (9 N)^(-1/4)                                              decoder of N blocks behind an encoder

These weights start as Xavier normal times g, query and key as Xavier normal. The embedding outside the stack starts as normal with standard
deviation dim^(-1/2) times (9 N)^(-1/4), which `embedding_std` gives. Depth is counted in blocks. Parameters: none. Cost a token: reads 2 dim,
writes 1 dim.
Source: Huang, Perez, Ba, Volkovs, Improving Transformer Optimization Through Better Initialization, ICML 2020.
"""

from typing import Any

from torch import Tensor

from skipway._errors import SchemeError
from skipway.schemes._base import Init, Scheme


class TFixup(Scheme):
    """h + F(h) with small weights. Options: stack ("encoder", "decoder")."""

    at_start = "plain"
    needs_depth = True

    def build(self, stack: str = "encoder") -> None:
        gains = {"encoder": 0.67 * self.blocks ** -0.25, "decoder": (9 * self.blocks) ** -0.25}
        if stack not in gains:
            raise SchemeError(f"scheme t_fixup: stack is {stack!r}; wanted one of {', '.join(gains)}")
        self.gain = gains[stack]
        self.embedding_std = self.dim ** -0.5 * (9 * self.blocks) ** -0.25

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return stream, None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return stream + y

    def initial(self) -> dict[str, Init]:
        small = {kind: Init("xavier", self.gain) for kind in ("value", "output", "input", "gate", "inner")}
        return {**small, "query": Init("xavier"), "key": Init("xavier")}
