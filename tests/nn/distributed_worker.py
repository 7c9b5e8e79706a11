"""One process of a group that trains the same small model whole, replicated and sharded, and writes down the losses.

    python distributed_worker.py RANK WORLD FOLDER CASE [CASE ...]          CASE is a key of CASES
"""

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from skipway.nn import Encoder, MoE, Stack

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests import two_processes

STEPS, BATCH, TOKENS, DIM = 5, 8, 4, 16
CASES: dict[str, dict[str, Any]] = {
    "plain": {"scheme": "pre_norm"},
    "reversed": {"scheme": "reversible"},
    "recomputed": {"scheme": "pre_norm", "activations": "recomputed"},
    "post_norm": {"scheme": "post_norm"},
    "hyper": {"scheme": "hyper", "lanes": 2},
    "values": {"scheme": "pre_norm", "attention": {"value_residual": True}},
    "momentum": {"scheme": "momentum"},
}


def build(case: str) -> nn.Module:
    torch.manual_seed(0)
    body = Stack([MoE(DIM, 8, 4), MoE(DIM, 8, 4)], DIM) if case == "moe" else Encoder(DIM, 2, 2, causal=True, **CASES[case])
    return nn.Sequential(nn.Linear(5, DIM), body, nn.Linear(DIM, 3))


def shared(model: nn.Module, mode: str) -> nn.Module:
    """The model as its processes hold it."""
    if mode == "replicas":
        return DistributedDataParallel(model)
    if mode.startswith("shards"):
        for layer in model[1].layers:                       # type: ignore[index, union-attr]
            fully_shard(layer if mode == "shards of layers" else layer.branch)
        fully_shard(model)
    return model


def curve(case: str, mode: str, rank: int, world: int) -> list[float]:
    made = torch.Generator().manual_seed(1)
    x, target = torch.randn(STEPS, BATCH, TOKENS, 5, generator=made), torch.randn(STEPS, BATCH, TOKENS, 3, generator=made)
    return two_processes.losses(shared(build(case), mode), list(zip(x, target, strict=True)), mode, rank, world)


if __name__ == "__main__":
    two_processes.process(sys.argv[1:], curve)
