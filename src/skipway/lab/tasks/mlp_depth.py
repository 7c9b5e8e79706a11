"""mlp_depth: the plain deep network of the degradation experiments: layers relu(W h + b) in a row, on a curve that a shallow one learns.

Points of `arms` interleaved spirals in the plane, embedded in `features` random directions with a little noise; the class is the arm. Every layer is
one sublayer of the stack, so depth counts layers. Inputs (batch, features).
Source of the experiment: He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition, 2015, arXiv 1512.03385, figure 1.
"""

import math
from typing import Any, ClassVar

import torch
from torch import nn

from skipway.lab.tasks._base import Batch, Task, seed_of
from skipway.lab.tasks._tokens import at_least


class MlpDepth(Task):
    """Options: arms of the spiral, features of an input, turns of an arm."""

    sublayers = ("dense",)
    causal = False
    together = True
    defaults: ClassVar[dict[str, Any]] = {
        "steps": 800, "width": 32, "heads": 1, "depth": 20, "batch": 128, "lr": [3e-4, 1e-3, 3e-3], "warmup": 20, "held_out": 8, "init": "he"}

    def build(self, arms: int = 4, features: int = 8, turns: float = 1.0) -> None:
        at_least("mlp_depth", 2, arms=arms, features=features)
        self.arms, self.turns = arms, turns
        self.classes, self.features = arms, features
        plane = torch.randn(features, features, generator=torch.Generator().manual_seed(seed_of("mlp_depth", features)))
        self.directions = torch.linalg.qr(plane)[0][:2]                    # two orthonormal directions

    def draw(self, split: str, generator: torch.Generator, size: int) -> Batch:
        labels = torch.randint(self.arms, (size,), generator=generator)
        radius = torch.rand(size, generator=generator).sqrt()
        angle = 2 * math.pi * (labels / self.arms + self.turns * radius)
        points = torch.stack([radius * angle.cos(), radius * angle.sin()], 1) * 2
        noise = 0.05 * torch.randn(size, self.directions.shape[1], generator=generator)
        return Batch(points @ self.directions + noise, labels)

    def embed(self, width: int) -> nn.Module:
        assert self.features is not None
        return nn.Linear(self.features, width)
