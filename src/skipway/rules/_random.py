"""The global sources of random numbers: torch on the CPU, the interpreter, numpy."""

import contextlib
import pickle
import random
from collections.abc import Iterator

import numpy as np
import torch


def snapshot() -> bytes:
    """All of their states, to compare."""
    return pickle.dumps((torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()))


@contextlib.contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """They start from a seed inside (None: from where they are), and go on as before afterwards, also after an exception."""
    state, python, array = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        if seed is not None:
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed)
        yield
    finally:
        torch.set_rng_state(state)
        random.setstate(python)
        np.random.set_state(array)
