"""scaled: constant factors on shortcut and branch.

    read(h) = h          write(h, y) = a h + b y

Initial values: a = b = 1 / sqrt(2) by default, which keeps the variance where h and y are independent and of equal variance. The factors are
constants. Parameters: none. Cost a token: reads 2 dim, writes 1 dim.
Source: the 1 / sqrt(2) of Karras et al., Analyzing and Improving the Image Quality of StyleGAN, 2019, arXiv 1912.04958, and of the diffusion
U-Nets after it; other pairs with a^2 + b^2 = 1 in Kedia et al., Transformers Get Stable, 2024, arXiv 2403.09635.
"""

from typing import Any

from torch import Tensor

from skipway.schemes._base import Scheme

HALF = 2 ** -0.5


class Scaled(Scheme):
    """a h + b F(h). Options: shortcut_scale (a), branch_scale (b)."""

    def build(self, shortcut_scale: float = HALF, branch_scale: float = HALF) -> None:
        self.a, self.b = shortcut_scale, branch_scale

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return stream, None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return self.a * stream + self.b * y
