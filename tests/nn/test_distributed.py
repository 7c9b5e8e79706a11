"""Two processes that replicate or shard a model have the loss curve of one that holds it whole."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

WORKER = Path(__file__).with_name("distributed_worker.py")
SMALL = ("plain", "reversed")

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="this torch has no gloo")


def cases() -> list[str]:
    spec = importlib.util.spec_from_file_location("distributed_worker", WORKER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [*module.CASES, "moe"]


def trained(folder: Path, names: list[str]) -> dict[str, dict[str, list[float]]]:
    """Curves by case and mode, after both processes have agreed on them."""
    commands = [[sys.executable, str(WORKER), str(rank), "2", str(folder), *names] for rank in range(2)]
    running = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for c in commands]
    told = [process.communicate(timeout=600)[0] for process in running]
    assert [p.returncode for p in running] == [0, 0], "\n".join(told)
    one, other = (json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2))
    assert one == other
    found: dict[str, dict[str, list[float]]] = {}
    for key, curve in one.items():
        case, mode = key.split(", ", 1)
        found.setdefault(case, {})[mode] = curve
    return found


def compare(found: dict[str, dict[str, list[float]]], names: list[str]) -> None:
    assert sorted(found) == sorted(names)
    for case, curves in found.items():
        whole = curves.pop("whole")
        assert max(whole) > min(whole) and set(curves) == {"replicas", "shards", "shards of layers"}
        for mode, curve in curves.items():
            assert curve == pytest.approx(whole, rel=0, abs=1e-5), (case, mode)


def test_replicas_and_shards(tmp_path: Path) -> None:
    compare(trained(tmp_path, list(SMALL)), list(SMALL))


@pytest.mark.slow
def test_replicas_and_shards_of_the_other_cases(tmp_path: Path) -> None:
    names = [c for c in cases() if c not in SMALL]
    compare(trained(tmp_path, names), names)


def test_a_planted_fault_is_seen() -> None:
    """Curves that part by more than 1e-5."""
    curves = {mode: [1.0, 0.5] for mode in ("whole", "replicas", "shards", "shards of layers")}
    compare({"plain": dict(curves)}, ["plain"])
    with pytest.raises(AssertionError, match="shards"):
        compare({"plain": {**curves, "shards": [1.0, 0.50002]}}, ["plain"])
