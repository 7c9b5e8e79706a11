"""What the tests of the rules of stage values share. Sequences are (batch, token, channel)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import skipway
from skipway import Finding

DIM = 16


class Residual(nn.Module):
    """`run(self, x)` on a stream, with a norm, a feed-forward and `parts` as attributes; tensors that are no parameters are buffers."""

    def __init__(self, run: Callable[[Any, Tensor], Tensor], **parts: Any) -> None:
        super().__init__()
        self.run = run
        self.norm = nn.LayerNorm(DIM)
        self.ffn = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def parameter(*values: float) -> nn.Parameter:
    """A scalar, or a vector of several values."""
    return nn.Parameter(torch.tensor(values[0] if len(values) == 1 else values))


def net(*blocks: nn.Module) -> nn.Module:
    """stem -> blocks -> norm -> head; blocks are modules 1, 2, ..."""
    return nn.Sequential(nn.Linear(4, DIM), *blocks, nn.LayerNorm(DIM), nn.Linear(DIM, 3)).eval()


def data(batch: int = 2, tokens: int = 6) -> Tensor:
    return torch.randn(batch, tokens, 4, generator=torch.Generator().manual_seed(0))


def found(code: str, model: nn.Module, *args: Any, **options: Any) -> tuple[Finding, ...]:
    """Findings of one rule."""
    report = skipway.check(model, *args, stage="values", select=[code], **options)
    assert report.not_understood == ()
    return report.findings


def places(code: str, model: nn.Module, *args: Any, **options: Any) -> list[str]:
    return [f.where for f in found(code, model, *args, **options)]
