"""Peak memory of a training step of a reversible stack at several depths, and its price in time.

    python bench/reversible.py [--blocks 12 48] [--width 128] [--batch 4] [--tokens 128] [--dropout 0.1] [--quick] [--json FILE]

All blocks of a stack share one set of weights, so that what grows with depth is activations and nothing else. Peak memory is the most that
tensors made during the step hold at one time, counted storage by storage as operations make them and as they are freed. Bar: 48 blocks
over 12 at most 1.15, for both reversible schemes. The same stacks with stored activations, and pre_norm with checkpoints, stand beside.
"""

import argparse
import json
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import skipway.nn as blocks

BAR = 1.15
CASES = (("reversible", "reversed"), ("momentum", "reversed"), ("reversible", "stored"), ("pre_norm", "stored"), ("pre_norm", "recomputed"))


class Held(TorchDispatchMode):
    """Bytes of the storages that operations made and nobody has freed, now and at most."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            if isinstance(value, Tensor):
                storage = value.untyped_storage()
                if storage._cdata not in self.seen:
                    self.seen.add(storage._cdata)
                    self.now += storage.nbytes()
                    weakref.finalize(storage, self.free, storage._cdata, storage.nbytes())
        self.most = max(self.most, self.now)
        return out

    def free(self, key: int, size: int) -> None:
        self.seen.discard(key)
        self.now -= size


def build(options: argparse.Namespace, scheme: str, activations: str, count: int) -> blocks.Stack:
    torch.manual_seed(0)
    pair = [blocks.Attention(options.width, max(options.width // 32, 1), causal=True), blocks.FeedForward(options.width, dropout=options.dropout)]
    more = {"gamma": 0.99} if scheme == "momentum" else {}
    return blocks.Stack(pair * count, options.width, scheme, dropout=options.dropout, activations=activations, **more)


def measure(stack: blocks.Stack, x: Tensor) -> tuple[float, float]:
    """MiB at most, and seconds of a step outside the count."""
    stack(x).square().mean().backward()                     # the gradients' own memory is there before the count
    start = time.perf_counter()
    stack(x).square().mean().backward()
    seconds = time.perf_counter() - start
    with Held() as held:
        stack(x).square().mean().backward()
    return held.most / 2 ** 20, seconds


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, nargs=2, default=[12, 48])
    for name, value in (("width", 128), ("batch", 4), ("tokens", 128)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.quick:
        options.width, options.tokens = 64, 32
    x = torch.randn(options.batch, options.tokens, options.width)
    few, many = options.blocks
    print(f"width {options.width}, batch {options.batch} x {options.tokens}, dropout {options.dropout}; peak MiB and seconds a step")
    print(f"{'scheme':<12} {'activations':<12} {few:>4} blocks {many:>11} blocks   ratio")
    kept: dict[str, Any] = {}
    for scheme, activations in CASES:
        (a, s), (b, t) = (measure(build(options, scheme, activations, n), x) for n in (few, many))
        kept[f"{scheme} {activations}"] = {"MiB": [a, b], "seconds": [s, t], "ratio": b / a}
        bar = f"   bar {BAR}" if activations == "reversed" else ""
        print(f"{scheme:<12} {activations:<12} {a:7.1f} {s:6.2f} {b:10.1f} {t:6.2f}   {b / a:5.2f}{bar}")
    if options.json:
        Path(options.json).write_text(json.dumps(kept, indent=1), encoding="utf-8")
    return 0 if all(v["ratio"] <= BAR for k, v in kept.items() if k.endswith("reversed")) else 1


if __name__ == "__main__":
    sys.exit(main())
