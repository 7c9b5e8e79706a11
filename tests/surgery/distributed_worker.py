"""One process of a group that trains the same rewired model whole, replicated and sharded, and writes down the losses.

    python distributed_worker.py RANK WORLD FOLDER
"""

import json
import pathlib
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import skipway

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from tests.surgery.conftest import Small

STEPS, BATCH = 5, 8


def build(how: str) -> nn.Module:
    torch.manual_seed(0)
    model = Small()
    chosen = skipway.rewire(model, torch.zeros(2, 6, dtype=torch.long)).sites()
    (chosen.layer_scale(0.5) if how == "layer_scale" else chosen.lanes(2, "mhc")).apply()
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


def losses(how: str, mode: str, rank: int, world: int) -> list[float]:
    """The loss over the whole batch at each step."""
    model = shared(build(how), mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    made = torch.Generator().manual_seed(1)
    ids, target = torch.randint(0, 11, (STEPS, BATCH, 6), generator=made), torch.randn(STEPS, BATCH, 6, 11, generator=made)
    share = slice(None) if mode == "whole" else slice(rank * BATCH // world, (rank + 1) * BATCH // world)
    found = []
    for step in range(STEPS):
        loss: Tensor = (model(ids[step, share]) - target[step, share]).square().mean()
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
    rank, world, folder = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=int(rank), world_size=int(world))
    modes = ("whole", "replicas", "shards", "shards of layers")
    found = {f"{how}, {mode}": losses(how, mode, int(rank), int(world)) for how in ("layer_scale", "lanes") for mode in modes}
    (pathlib.Path(folder) / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
