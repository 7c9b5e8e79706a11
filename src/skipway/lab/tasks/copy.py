"""copy: a row of random symbols, a separator, and the same symbols again; the loss is on the second half.

Inputs (batch, 2 length) of int64, targets the next token on the copied part. What must cross the layers is every symbol, unchanged.
"""

from typing import Any, ClassVar

import torch
from torch import nn

from skipway.lab.tasks._base import Batch, Task
from skipway.lab.tasks._tokens import TokenEmbedding, at_least, next_token


class Copy(Task):
    """Options: symbols, length of the part that is copied."""

    together = True
    defaults: ClassVar[dict[str, Any]] = {
        "steps": 150, "width": 32, "heads": 4, "depth": 6, "batch": 32, "lr": [1e-3, 3e-3, 1e-2], "warmup": 15, "held_out": 4}

    def build(self, symbols: int = 16, length: int = 8) -> None:
        at_least("copy", 2, symbols=symbols)
        at_least("copy", 1, length=length)
        self.half, self.symbols = length, symbols
        self.vocabulary, self.classes, self.length = symbols + 1, symbols, 2 * length

    def draw(self, split: str, generator: torch.Generator, size: int) -> Batch:
        first = torch.randint(self.symbols, (size, self.half), generator=generator)
        rows = torch.cat([first, torch.full((size, 1), self.symbols), first], 1)
        return next_token(rows, torch.arange(2 * self.half).expand(size, -1) >= self.half)

    def embed(self, width: int) -> nn.Module:
        return TokenEmbedding(self.symbols + 1, self.length, width)
