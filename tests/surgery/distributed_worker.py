"""One process of a group that trains the same rewired model whole, replicated and sharded, and writes down the losses.

    python distributed_worker.py RANK WORLD FOLDER CASE [CASE ...]          CASE is layer_scale or lanes
"""

import pathlib
import sys

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import skipway

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from tests import two_processes
from tests.surgery.conftest import Small

STEPS, BATCH = 5, 8


def build(case: str) -> nn.Module:
    torch.manual_seed(0)
    model = Small()
    chosen = skipway.rewire(model, torch.zeros(2, 6, dtype=torch.long)).sites()
    (chosen.layer_scale(0.5) if case == "layer_scale" else chosen.lanes(2, "mhc")).apply()
    return model


def shared(model: nn.Module, mode: str) -> nn.Module:
    """The model as its processes hold it."""
    if mode == "replicas":
        return DistributedDataParallel(model)
    if mode == "shards of layers":
        for block in model.blocks:                          # type: ignore[union-attr]
            fully_shard(block)
    if mode.startswith("shards"):
        fully_shard(model)
    return model


def curve(case: str, mode: str, rank: int, world: int) -> list[float]:
    made = torch.Generator().manual_seed(1)
    ids, target = torch.randint(0, 11, (STEPS, BATCH, 6), generator=made), torch.randn(STEPS, BATCH, 6, 11, generator=made)
    return two_processes.losses(shared(build(case), mode), list(zip(ids, target, strict=True)), mode, rank, world)


if __name__ == "__main__":
    two_processes.process(sys.argv[1:], curve)
