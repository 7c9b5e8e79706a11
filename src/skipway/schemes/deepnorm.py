"""deepnorm: post-norm whose shortcut is multiplied by alpha and whose branch starts small.

    read(h) = h          write(h, y) = N(alpha h + y)          value, output and both feed-forward weights start as Xavier normal times beta

              alpha                       beta                            stack
    alone     (2 N)^(1/4)                 (8 N)^(-1/4)                    encoder-only or decoder-only, N blocks
    encoder   0.81 (N^4 M)^(1/16)         0.87 (N^4 M)^(-1/16)            encoder of N blocks before a decoder of M
    decoder   (3 M)^(1/4)                 (12 M)^(-1/4)                   decoder of M blocks behind an encoder

Depth is counted in blocks. Parameters: one norm a sublayer. Cost a token: reads 3 dim, writes 2 dim.
Source: Wang et al., DeepNet: Scaling Transformers to 1,000 Layers, 2022, arXiv 2203.00555, table of its figure 2.
"""

from typing import Any

from torch import Tensor

from skipway._errors import SchemeError
from skipway.schemes._base import Init, Scheme, Traffic


class DeepNorm(Scheme):
    """N(alpha h + F(h)). Options: stack ("alone", "encoder", "decoder") and, for an encoder, decoder_blocks."""

    placement = "post"
    needs_depth = True
    traffic = Traffic(3, 2)

    def build(self, stack: str = "alone", decoder_blocks: int | None = None) -> None:
        n = self.blocks
        if stack == "encoder" and decoder_blocks is None:
            raise SchemeError("scheme deepnorm: an encoder's constants need the decoder's depth; give decoder_blocks=")
        product = n ** 4 * (decoder_blocks or 1)
        constants = {"alone": ((2 * n) ** 0.25, (8 * n) ** -0.25),
                     "encoder": (0.81 * product ** (1 / 16), 0.87 * product ** (-1 / 16)),
                     "decoder": ((3 * n) ** 0.25, (12 * n) ** -0.25)}
        if stack not in constants:
            raise SchemeError(f"scheme deepnorm: stack is {stack!r}; wanted one of {', '.join(constants)}")
        self.alpha, self.beta = constants[stack]
        self.norm = self.make_norm(self.dim)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return stream, None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return self.norm(self.alpha * stream + y)

    def initial(self) -> dict[str, Init]:
        return {kind: Init("xavier", self.beta) for kind in ("value", "output", "input", "gate")}
