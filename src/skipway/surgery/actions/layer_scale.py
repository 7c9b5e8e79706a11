"""layer_scale: a learned scale on each channel of the branch, `y = x + g * F(x)`.

Source: Touvron et al., Going Deeper with Image Transformers, 2021, arXiv 2103.17239. There g starts small, in a model that is trained from the
start; here it starts at `init`, 1 unless said otherwise, at which a trained model keeps its function to the last bit.
"""

import torch
from torch import Tensor, nn

from skipway._errors import RewireError
from skipway.surgery._action import Action


class LayerScale(Action):
    """Options: init. Parameters: dim."""

    def build(self, init: float = 1.0) -> None:
        if not isinstance(init, (int, float)):
            raise RewireError(f"rewire: layer_scale wants a number for init, got {type(init).__name__}")
        self.gain = nn.Parameter(torch.full((self.spot.dim,), float(init)))
        self.exact = init == 1

    def change(self, shortcut: Tensor, branch: Tensor) -> tuple[Tensor, Tensor]:
        gain = self.gain.to(branch.dtype)
        return shortcut, branch * (gain if self.spot.axis == -1 else gain.view(-1, *[1] * (-self.spot.axis - 1)))
