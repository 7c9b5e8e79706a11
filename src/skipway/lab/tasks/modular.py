"""modular: a + b modulo a prime, learned from a part of all sums and tested on the rest.

A row is a b =; the target of the last token is (a + b) mod modulus. The split is fixed, so what is held out was never seen.
Source: Power et al., Grokking: Generalization Beyond Overfitting on Small Algorithmic Datasets, 2022, arXiv 2201.02177.
"""

from typing import Any, ClassVar

import torch
from torch import nn

from skipway._errors import StudyError
from skipway.lab.tasks._base import HELD_OUT, IGNORE, Batch, Task, seed_of
from skipway.lab.tasks._tokens import TokenEmbedding, at_least


class Modular(Task):
    """Options: modulus, share of the sums that are trained on."""

    defaults: ClassVar[dict[str, Any]] = {
        "steps": 3000, "width": 64, "heads": 4, "depth": 2, "batch": 256, "lr": [1e-3, 3e-3], "warmup": 100, "held_out": 2, "weight_decay": 1.0}

    def build(self, modulus: int = 53, train: float = 0.7) -> None:
        at_least("modular", 2, modulus=modulus)
        if not 0 < train < 1:
            raise StudyError(f"task modular: train is {train}; want a share between 0 and 1")
        pairs = torch.cartesian_prod(torch.arange(modulus), torch.arange(modulus))
        order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(seed_of("modular", modulus)))
        cut = max(1, min(len(pairs) - 1, round(train * len(pairs))))
        self.sums = {"train": pairs[order[:cut]], HELD_OUT: pairs[order[cut:]]}
        self.modulus = modulus
        self.vocabulary, self.classes, self.length = modulus + 1, modulus, 3

    def draw(self, split: str, generator: torch.Generator, size: int) -> Batch:
        pairs = self.sums[split]
        chosen = pairs[torch.randint(len(pairs), (size,), generator=generator)]
        rows = torch.cat([chosen, torch.full((size, 1), self.modulus)], 1)
        targets = torch.full((size, 3), IGNORE)
        targets[:, -1] = chosen.sum(1) % self.modulus
        return Batch(rows, targets)

    def embed(self, width: int) -> nn.Module:
        return TokenEmbedding(self.modulus + 1, 3, width)
