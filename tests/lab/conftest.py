"""Tests of this folder run as a worker does: with one thread."""

import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
