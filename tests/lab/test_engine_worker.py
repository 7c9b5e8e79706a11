"""What a worker says of a trial that raised, and what its holder makes of a line that a kill cut off."""

import queue
from typing import Any

import pytest
import torch

from skipway.lab import _worker
from skipway.lab.engines._process import Process


@pytest.mark.parametrize(("error", "said"), [
    (MemoryError(), "out of memory"),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to get 2.00 GiB\nsecond line"), "out of memory: CUDA out of memory. Tried to get 2.00 GiB"),
    (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 8 bytes"),
     "out of memory: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 8 bytes"),
    (ValueError("wrong\nsecond line"), "ValueError: wrong"),
    (KeyError(), "KeyError"),
])
def test_one_line_for_a_trial_that_raised(error: BaseException, said: str) -> None:
    assert _worker.why(error) == said


@pytest.mark.parametrize("last", ['{"kind": "st', "", "no json"])
def test_a_cut_line_is_the_end_of_a_worker(last: str) -> None:
    """A worker that is killed while it writes must not hang the study."""
    process = Process.__new__(Process)
    process.process = type("Ended", (), {"stdout": iter(['{"kind": "began"}\n', *([last] if last else [])])})()     # type: ignore[assignment]
    said: queue.Queue[Any] = queue.Queue()
    process._read(said)
    assert [said.get_nowait()[1] for _ in range(2)] == [{"kind": "began"}, None] and said.empty()
