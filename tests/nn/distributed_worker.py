"""One process of a group that trains the same small model whole, replicated and sharded, and writes down the losses.

    python distributed_worker.py RANK WORLD FOLDER CASE [CASE ...]          CASE is a key of CASES
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from skipway.nn import Encoder, MoE, Stack

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
MODES = ("whole", "replicas", "shards", "shards of layers")


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


def losses(case: str, mode: str, rank: int, world: int) -> list[float]:
    """The loss over the whole batch at each step."""
    model = shared(build(case), mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    made = torch.Generator().manual_seed(1)
    x, target = torch.randn(STEPS, BATCH, TOKENS, 5, generator=made), torch.randn(STEPS, BATCH, TOKENS, 3, generator=made)
    share = slice(None) if mode == "whole" else slice(rank * BATCH // world, (rank + 1) * BATCH // world)
    found = []
    for step in range(STEPS):
        loss: Tensor = (model(x[step, share]) - target[step, share]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        told = loss.detach().clone()
        if mode != "whole":
            dist.all_reduce(told)
            told /= world
        found.append(float(told))
    return found


def main() -> None:
    rank, world, folder, *cases = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=int(rank), world_size=int(world))
    found = {f"{case}, {mode}": losses(case, mode, int(rank), int(world)) for case in cases for mode in MODES}
    (Path(folder) / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
