"""digits: scikit-learn's 1,797 handwritten digits of 8 x 8 pixels, cut into patches for a Vision Transformer.

Inputs (batch, patches, patch x patch), values from 0 to 1; the model's outputs are averaged over patches. One digit in five is held out.
Source of the data: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, 1998, as scikit-learn ships it.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from skipway._errors import StudyError
from skipway.lab import _needs
from skipway.lab.tasks._base import HELD_OUT, TRAIN, Batch, Task, seed_of
from skipway.lab.tasks._tokens import PatchEmbedding

SIDE = 8


class Digits(Task):
    """Options: side of a patch."""

    defaults: ClassVar[dict[str, Any]] = {
        "steps": 600, "width": 64, "heads": 4, "depth": 6, "batch": 64, "lr": [3e-4, 1e-3, 3e-3], "warmup": 50, "held_out": 4}
    causal = False

    def build(self, patch: int = 2) -> None:
        if patch < 1 or SIDE % patch:
            raise StudyError(f"task digits: patch is {patch}; want 1, 2, 4 or 8, since a picture is 8 x 8")
        _needs.check("sklearn")
        from sklearn.datasets import load_digits
        pictures, labels = load_digits(return_X_y=True)
        images = torch.tensor(pictures, dtype=torch.float32).view(-1, SIDE // patch, patch, SIDE // patch, patch) / 16
        images = images.transpose(2, 3).reshape(len(images), -1, patch * patch)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed_of("digits")))
        cut = len(images) // 5
        self.rows = {split: Batch(images[part], torch.tensor(labels)[part]) for split, part in ((HELD_OUT, order[:cut]), (TRAIN, order[cut:]))}
        self.classes, self.length, self.features = 10, images.shape[1], patch * patch
        self.side, self.patch = SIDE, patch

    def draw(self, split: str, generator: torch.Generator, size: int) -> Batch:
        inputs, labels = self.rows[split]
        chosen = torch.randint(len(labels), (size,), generator=generator)
        return Batch(inputs[chosen], labels[chosen])

    def pictures(self, inputs: Tensor) -> Tensor:
        many = SIDE // self.patch
        return inputs.view(-1, many, many, self.patch, self.patch).transpose(2, 3).reshape(-1, 1, SIDE, SIDE)

    def embed(self, width: int) -> nn.Module:
        assert self.features is not None
        return PatchEmbedding(self.features, self.length, width)

    def head(self, width: int) -> nn.Module:
        return MeanHead(width, self.classes)


class MeanHead(nn.Module):
    """W mean over tokens of h: (batch, token, width) to (batch, classes)."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, classes)

    def forward(self, states: Tensor) -> Tensor:
        y: Tensor = self.out(states.mean(1))
        return y
