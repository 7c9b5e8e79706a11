"""output_norm: a norm behind the branch only (res-post-norm; OLMo 2's reordered norm).

    read(h) = h          write(h, y) = h + N(y)          after the stack: a final norm

Initial values: the gain of N is `start`: 1 as in OLMo 2, 0 as timm starts Swin V2, which makes the stack the identity. The branch reads the raw
stream, which grows, so attention wants norms on queries and keys. Parameters: one norm a sublayer. Cost a token: reads 3 dim, writes 2 dim.
Source: Liu et al., Swin Transformer V2, 2021, arXiv 2111.09883; OLMo et al., 2 OLMo 2 Furious, 2024, arXiv 2501.00656.
"""

from typing import Any

from torch import Tensor

from skipway.schemes._base import Scheme, Traffic
from skipway.schemes._norms import filled


class OutputNorm(Scheme):
    """h + N(F(h)). Options: start (gain of N)."""

    placement = "output"
    final_norm = True
    traffic = Traffic(3, 2)

    def build(self, start: float = 1.0) -> None:
        self.norm = filled(self, self.make_norm(self.dim), start)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return stream, None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return stream + self.norm(y)
