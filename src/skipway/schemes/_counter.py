"""The step counter of schemes that let their branches in over training."""

import torch
from torch import Tensor, nn

from skipway._errors import SchemeError


class Counter(nn.Module):
    """min(1, step / period), with the step as a buffer that a state dict keeps. `owner` is the scheme's name, for messages."""

    step: Tensor

    def __init__(self, owner: str, period: int, step: int) -> None:
        super().__init__()
        if period < 1 or step < 0:
            raise SchemeError(f"scheme {owner}: period is {period} and step {step}; wanted a period of 1 or more steps and a step of 0 or more")
        self.period = period
        self.register_buffer("step", torch.tensor(step))

    def share(self, like: Tensor) -> Tensor:
        """A number between 0 and 1, without a shape. Half precision would round the step, so the share is never narrower than float32."""
        wide = torch.float64 if like.dtype == torch.float64 else torch.float32
        return (self.step.to(wide) / self.period).clamp(max=1.0)

    def advance(self, steps: int) -> None:
        """Counts steps of the optimizer."""
        self.step += steps

    def extra_repr(self) -> str:
        """The period."""
        return f"period={self.period}"
