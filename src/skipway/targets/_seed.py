"""The seed of everything that targets make up: random inputs and random weights."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import torch

_SEED: ContextVar[int] = ContextVar("seed", default=0)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, `generator` and `reseed` start from this seed."""
    token = _SEED.set(seed)
    try:
        yield
    finally:
        _SEED.reset(token)


def generator(offset: int = 0) -> torch.Generator:
    """A fresh generator; equal seeds and offsets give equal numbers."""
    return torch.Generator().manual_seed(_SEED.get() + offset)


def reseed() -> None:
    """Starts torch's own random numbers, which constructors of models use, from the seed."""
    torch.manual_seed(_SEED.get())
