"""Of a slow test with many cases a run takes a seeded sample; `pytest -m slow` takes all of them, and so does naming a test."""

import os
import random

import pytest

# Before torch is imported: two test processes with two threads each wait for each other on two cores, up to twenty times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SAMPLE = 4


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "slow" in (config.option.markexpr or "") or any("::" in str(a) for a in config.args):
        return
    groups: dict[str, list[str]] = {}
    for item in items:
        if item.get_closest_marker("slow"):
            groups.setdefault(item.nodeid.partition("[")[0], []).append(item.nodeid)
    left_out: set[str] = set()
    for name, cases in groups.items():
        if len(cases) > SAMPLE:
            left_out |= set(cases) - set(random.Random(name).sample(sorted(cases), SAMPLE))
    config.hook.pytest_deselected(items=[i for i in items if i.nodeid in left_out])
    items[:] = [i for i in items if i.nodeid not in left_out]
