"""Two processes that replicate or shard a model have the loss curve of one that holds it whole."""

import importlib.util
from pathlib import Path

import pytest
import torch.distributed as dist

from ..two_processes import compare, trained

WORKER = Path(__file__).with_name("distributed_worker.py")
SMALL = ("plain", "reversed")

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="this torch has no gloo")


def cases() -> list[str]:
    spec = importlib.util.spec_from_file_location("distributed_worker", WORKER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [*module.CASES, "moe"]


def test_replicas_and_shards(tmp_path: Path) -> None:
    compare(trained(WORKER, tmp_path, list(SMALL)), list(SMALL))


@pytest.mark.slow
def test_replicas_and_shards_of_the_other_cases(tmp_path: Path) -> None:
    names = [c for c in cases() if c not in SMALL]
    compare(trained(WORKER, tmp_path, names), names)


def test_a_planted_fault_is_seen() -> None:
    """Curves that part by more than 1e-5."""
    curves = {mode: [1.0, 0.5] for mode in ("whole", "replicas", "shards", "shards of layers")}
    compare({"plain": dict(curves)}, ["plain"])
    with pytest.raises(AssertionError, match="shards"):
        compare({"plain": {**curves, "shards": [1.0, 0.50002]}}, ["plain"])
