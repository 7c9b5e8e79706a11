"""The loss curve of a model on two gloo processes beside that of one: what the scripts of the processes and the tests that start them share."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

MODES = ("whole", "replicas", "shards", "shards of layers")
Curves = dict[str, dict[str, list[float]]]


def losses(model: nn.Module, batches: Sequence[tuple[Tensor, Tensor]], mode: str, rank: int, world: int) -> list[float]:
    """The loss over the whole batch at each step; but for "whole", each process trains on its share of the rows."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found = []
    for x, target in batches:
        share = slice(None) if mode == "whole" else slice(rank * len(x) // world, (rank + 1) * len(x) // world)
        loss: Tensor = (model(x[share]) - target[share]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        told = loss.detach().clone()
        if mode != "whole":
            dist.all_reduce(told)
            told /= world
        found.append(float(told))
    return found


def process(arguments: Sequence[str], curve: Callable[[str, str, int, int], list[float]]) -> None:
    """One process: RANK WORLD FOLDER CASE [CASE ...]. Writes `curve(case, mode, rank, world)` of all cases and modes to FOLDER/RANK.json."""
    rank, world, folder, *cases = arguments
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=int(rank), world_size=int(world))
    found = {case: {mode: curve(case, mode, int(rank), int(world)) for mode in MODES} for case in cases}
    (Path(folder) / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def trained(script: Path, folder: Path, names: Sequence[str]) -> Curves:
    """Curves by case and mode of two processes that run a script, after both have agreed on them."""
    commands = [[sys.executable, str(script), str(rank), "2", str(folder), *names] for rank in range(2)]
    running = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for c in commands]
    told = [p.communicate(timeout=600)[0] for p in running]
    assert [p.returncode for p in running] == [0, 0], "\n".join(told)
    one, other = (json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2))
    assert one == other
    curves: Curves = one
    return curves


def compare(found: Curves, names: Sequence[str]) -> None:
    """Every way of sharing the work has the curve of the whole."""
    assert sorted(found) == sorted(names)
    for case, curves in found.items():
        whole = curves.pop("whole")
        assert max(whole) > min(whole) and set(curves) == set(MODES[1:])
        for mode, curve in curves.items():
            assert curve == pytest.approx(whole, rel=0, abs=1e-5), (case, mode)
