"""sub_norm: pre-norm with a second norm inside the branch, before its output projection (Sub-LN, Magneto).

    read(h) = N1(h)          write(h, y) = h + y          the branch: W_out N2(...)          after the stack: a final norm

              gain g on value, output and both feed-forward weights           stack
    alone     sqrt(ln(2 N))                                                   encoder-only or decoder-only, N blocks
    encoder   sqrt(ln(3 M) ln(2 N) / 3)                                       encoder of N blocks before a decoder of M
    decoder   sqrt(ln(3 M))                                                   decoder of M blocks behind an encoder

These weights start as Xavier normal times g. Depth is counted in blocks. N2 stands where only the branch can put it: `nn.Residual` calls
`branch.inner_norm(make)`, by which the branch makes a norm of the width that its output projection reads and owns it; a branch without that
method is refused. Parameters: one norm a sublayer here, one in the branch. Cost a token: reads 3 dim, writes 2 dim, and the inner norm.
Source: Wang et al., Foundation Transformers, 2022, arXiv 2210.06423.
"""

import math
from typing import Any

from torch import Tensor

from skipway._errors import SchemeError
from skipway.schemes._base import Init, Scheme, Traffic


class SubNorm(Scheme):
    """h + F(N1(h)) with a norm inside F. Options: stack ("alone", "encoder", "decoder") and, for an encoder, decoder_blocks."""

    placement = "pre"
    final_norm = True
    needs_depth = True
    inner_norm = True
    traffic = Traffic(3, 2)

    def build(self, stack: str = "alone", decoder_blocks: int | None = None) -> None:
        n = self.blocks
        if stack == "encoder" and decoder_blocks is None:
            raise SchemeError("scheme sub_norm: an encoder's gain needs the decoder's depth; give decoder_blocks=")
        gains = {"alone": math.log(2 * n), "encoder": math.log(3 * (decoder_blocks or 1)) * math.log(2 * n) / 3, "decoder": math.log(3 * n)}
        if stack not in gains:
            raise SchemeError(f"scheme sub_norm: stack is {stack!r}; wanted one of {', '.join(gains)}")
        self.gain = math.sqrt(gains[stack])
        self.norm = self.make_norm(self.dim)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return self.norm(stream), None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return stream + y

    def initial(self) -> dict[str, Init]:
        return {kind: Init("xavier", self.gain) for kind in ("value", "output", "input", "gate")}
