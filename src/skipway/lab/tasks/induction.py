"""induction: random symbols in which one stands twice; the loss is on the symbol that followed its first place.

A row holds a trigger t somewhere, followed by a symbol s, and ends with t; the target of the last token is s. Inputs (batch, length).
Source: Olsson et al., In-context Learning and Induction Heads, 2022, arXiv 2209.11895; in this form Fu et al., Hungry Hungry Hippos, 2022,
arXiv 2212.14052.
"""

from typing import Any, ClassVar

import torch
from torch import nn

from skipway.lab.tasks._base import IGNORE, Batch, Task
from skipway.lab.tasks._tokens import TokenEmbedding, at_least


class Induction(Task):
    """Options: symbols, tokens a row."""

    defaults: ClassVar[dict[str, Any]] = {
        "steps": 500, "width": 64, "heads": 4, "depth": 2, "batch": 64, "lr": [1e-3, 3e-3], "warmup": 50, "held_out": 8}

    def build(self, symbols: int = 16, length: int = 24) -> None:
        at_least("induction", 2, symbols=symbols)
        at_least("induction", 4, length=length)
        self.symbols = symbols
        self.vocabulary, self.classes, self.length = symbols + 1, symbols, length

    def draw(self, split: str, generator: torch.Generator, size: int) -> Batch:
        rows = torch.randint(self.symbols, (size, self.length), generator=generator)
        place = torch.randint(self.length - 2, (size, 1), generator=generator)
        trigger = torch.full((size, 1), self.symbols)
        rows = rows.scatter(1, place, trigger).scatter(1, torch.full_like(place, self.length - 1), trigger)
        targets = torch.full((size, self.length), IGNORE)
        targets[:, -1] = rows.gather(1, place + 1)[:, 0]
        return Batch(rows, targets)

    def embed(self, width: int) -> nn.Module:
        return TokenEmbedding(self.symbols + 1, self.length, width)
