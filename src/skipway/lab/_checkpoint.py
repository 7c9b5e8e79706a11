"""A trial on disk between two steps: one safetensors file with weights, optimizer and random states, and what was recorded so far.

It is written beside and moved into place, so that a kill leaves the file before or the file after. A checksum over everything tells a damaged one.
"""

import hashlib
import json
import os
import pathlib
import random
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from skipway._errors import StoreError
from skipway.lab._optimizer import Optimizer


def write(path: pathlib.Path, model: nn.Module, optimizer: Optimizer, progress: dict[str, Any]) -> None:
    """Raises OSError where the disk does not take it; the file before is then still there."""
    tensors = {f"model.{k}": v for k, v in model.state_dict().items()} | {f"optimizer.{k}": v for k, v in optimizer.tensors().items()}
    tensors["rng.torch"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["rng.cuda"] = torch.cuda.get_rng_state()
    kept = {k: v.detach().cpu().clone().contiguous() for k, v in tensors.items()}
    said = json.dumps({"progress": progress, "random": _plain(random.getstate()), "numpy": _numpy()})
    data = save(kept, {"skipway": said, "checksum": _checksum(kept, said)})
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with open(beside, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def read(path: pathlib.Path, model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """Brings model, optimizer and random states to where the file left them; gives the recorded progress. Raises StoreError for a damaged file."""
    try:
        with safe_open(path, framework="pt") as found:
            tensors = {k: found.get_tensor(k) for k in found.keys()}                            # noqa: SIM118  (the handle is no mapping)
            said = found.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise _damaged(path, str(error)) from error
    if "skipway" not in said or said.get("checksum") != _checksum(tensors, said["skipway"]):
        raise _damaged(path, "its checksum is wrong")
    state = json.loads(said["skipway"])
    model.load_state_dict(_under("model.", tensors))
    optimizer.load(_under("optimizer.", tensors))
    torch.set_rng_state(tensors["rng.torch"])
    if torch.cuda.is_available() and "rng.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["rng.cuda"])
    random.setstate(_tuple(state["random"]))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
    progress: dict[str, Any] = state["progress"]
    return progress


def peek(path: pathlib.Path) -> dict[str, Any]:
    """The recorded progress alone, empty where it cannot be read: `read` then tells the damage."""
    try:
        with safe_open(path, framework="pt") as found:
            progress: dict[str, Any] = json.loads((found.metadata() or {})["skipway"])["progress"]
            return progress
    except (SafetensorError, OSError, KeyError, ValueError):
        return {}


def _damaged(path: pathlib.Path, why: str) -> StoreError:
    return StoreError(f"{path}: the checkpoint is damaged ({' '.join(why.split())}); delete it and resume with --retry, and this trial starts anew")


def _under(head: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(head): v for k, v in tensors.items() if k.startswith(head)}


def _checksum(tensors: dict[str, Tensor], said: str) -> str:
    found = hashlib.blake2b(said.encode(), digest_size=16)
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _numpy() -> list[Any]:
    kind, keys, *rest = np.random.get_state()
    return [kind, np.asarray(keys).tolist(), *rest]


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _tuple(value: Any) -> Any:
    return tuple(_tuple(v) for v in value) if isinstance(value, list) else value
