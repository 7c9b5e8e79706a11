"""recall: pairs of key and value, then keys again; the loss is on the value of each.

A row is k1 v1 k2 v2 ... q1 a1 q2 a2 ...; keys are drawn without return, the queries are the keys in another order. Inputs (batch, 4 pairs - 1).
Source: associative recall, Graves, Wayne, Danihelka, Neural Turing Machines, 2014, arXiv 1410.5401; in this form Arora et al., Zoology, 2023,
arXiv 2312.04927.
"""

from typing import Any, ClassVar

import torch
from torch import nn

from skipway._errors import StudyError
from skipway.lab.tasks._base import Batch, Task
from skipway.lab.tasks._tokens import TokenEmbedding, at_least, next_token


class Recall(Task):
    """Options: pairs a row, number of keys and of values there are."""

    defaults: ClassVar[dict[str, Any]] = {
        "steps": 400, "width": 64, "heads": 4, "depth": 2, "batch": 32, "lr": [1e-3, 3e-3], "warmup": 40, "held_out": 4}

    def build(self, pairs: int = 6, keys: int = 12, values: int = 12) -> None:
        at_least("recall", 2, values=values)
        at_least("recall", 1, pairs=pairs)
        if keys < pairs:
            raise StudyError(f"task recall: {pairs} pairs of {keys} keys; want at least as many keys as pairs, since a key has one value")
        self.pairs, self.keys, self.values = pairs, keys, values
        self.vocabulary, self.classes, self.length = keys + values, values, 4 * pairs - 1

    def draw(self, split: str, generator: torch.Generator, size: int) -> Batch:
        keys = torch.rand(size, self.keys, generator=generator).argsort(1)[:, :self.pairs]
        values = torch.randint(self.values, (size, self.pairs), generator=generator)
        order = torch.rand(size, self.pairs, generator=generator).argsort(1)
        shown = torch.stack([keys, values + self.keys], 2).flatten(1)
        asked = torch.stack([keys.gather(1, order), values.gather(1, order) + self.keys], 2).flatten(1)
        places = torch.arange(4 * self.pairs - 1)
        made = next_token(torch.cat([shown, asked], 1), ((places >= 2 * self.pairs) & (places % 2 == 0)).expand(size, -1))
        return Batch(made.inputs, torch.where(made.targets < 0, made.targets, made.targets - self.keys))

    def embed(self, width: int) -> nn.Module:
        return TokenEmbedding(self.keys + self.values, self.length, width)
