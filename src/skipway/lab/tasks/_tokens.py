"""The start of the stream for tokens and for patches."""

import torch
from torch import Tensor, nn

from skipway._errors import StudyError
from skipway.lab.tasks._base import IGNORE, Batch


class TokenEmbedding(nn.Module):
    """token + place: (batch, token) of int64 to (batch, token, width)."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)

    def forward(self, inputs: Tensor) -> Tensor:
        places: Tensor = self.place.weight[:inputs.shape[1]]
        return self.token(inputs) + places


class PatchEmbedding(nn.Module):
    """W patch + place: (batch, token, feature) to (batch, token, width)."""

    def __init__(self, features: int, length: int, width: int) -> None:
        super().__init__()
        self.patch, self.place = nn.Linear(features, width), nn.Embedding(length, width)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.patch(inputs) + self.place.weight


def next_token(rows: Tensor, wanted: Tensor) -> Batch:
    """Inputs are all tokens of a row but the last, targets the token after each, where `wanted` (of the targets' shape) says so."""
    return Batch(rows[:, :-1].contiguous(), torch.where(wanted, rows[:, 1:], IGNORE))


def at_least(task: str, least: int, **values: int) -> None:
    """Raises StudyError where an option is below what makes sense."""
    for key, value in values.items():
        if value < least:
            raise StudyError(f"task {task}: {key} is {value}; want {least} or more")
