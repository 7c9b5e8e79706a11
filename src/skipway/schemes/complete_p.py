"""complete_p: every branch times m^(-alpha), and optimizer settings to match, so that what was tuned on a shallow stack holds for a deep one.

    read(h) = N(h)          write(h, y) = h + m^(-alpha) y          m = N / base_blocks          after the stack: a final norm

alpha = 1 is CompleteP, 0.5 is Depth-muP, 0 leaves the depth alone. With w = dim / base_dim, AdamW's settings for what the stack holds are those
of the base model times

    learning rate, matrices     m^(alpha - 1) / w          epsilon          m^(-alpha) / w
    learning rate, vectors      m^(alpha - 1)              weight decay     w

`tuning` gives them for the branch, `rates` for the norm, and `Stack.param_groups(lr, eps, weight_decay)` applies them; embedding and head keep
the base learning rate. Hidden weights start with a standard deviation that goes with 1 / sqrt(fan in), as nn.Linear's does. Depth is counted in
blocks; base_blocks is 2 and the width is not scaled (base_dim=None) by default. Parameters: one norm a sublayer. Cost a token: reads 3 dim,
writes 2 dim.
Source: Dey et al., Don't be lazy: CompleteP enables compute-efficient deep transformers, 2025, arXiv 2505.01618.
"""

from typing import Any

from torch import Tensor

from skipway._errors import SchemeError
from skipway.schemes._base import Scheme, Traffic, Tuning


class CompleteP(Scheme):
    """h + m^(-alpha) F(N(h)). Options: alpha, base_blocks, base_dim."""

    placement = "pre"
    final_norm = True
    needs_depth = True
    traffic = Traffic(3, 2)

    def build(self, alpha: float = 1.0, base_blocks: int = 2, base_dim: int | None = None) -> None:
        if base_blocks < 1 or (base_dim is not None and base_dim < 1):
            raise SchemeError(f"scheme complete_p: base_blocks is {base_blocks} and base_dim {base_dim}; wanted the size of the model that was "
                              "tuned, 1 or more")
        self.alpha, self.deeper, self.wider = alpha, self.blocks / base_blocks, self.dim / (base_dim or self.dim)
        self.scale = self.deeper ** -alpha
        self.norm = self.make_norm(self.dim)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return self.norm(stream), None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return stream + self.scale * y

    def tuning(self) -> Tuning:
        rate = self.deeper ** (self.alpha - 1)
        return Tuning(matrix=rate / self.wider, vector=rate, eps=self.scale / self.wider, decay=self.wider)

    def rates(self) -> dict[str, float]:
        rate = self.deeper ** (self.alpha - 1)
        return {} if rate == 1.0 else {name: rate for name, _ in self.named_parameters()}
