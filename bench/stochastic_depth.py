"""Time of a training step of a block stack with stochastic depth against the step without, interleaved in one process.

    python bench/stochastic_depth.py [--blocks 6] [--width 256] [--batch 32] [--tokens 128] [--drop 0.5] [--repeats 15] [--quick] [--json FILE]

Every sublayer drops each sample with the probability --drop. Bar: at 0.5 at most 0.65 of the time at 0. timm's DropPath, which computes what it
drops, is timed beside it. A step is forward, backward and the optimizer; ratios are medians over paired steps.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import skipway.nn as blocks

BAR = 0.65


class Masked(nn.Module):
    """Stochastic depth as timm does it: the branch runs on all samples, and the result is multiplied."""

    def __init__(self, branch: nn.Module, p: float) -> None:
        super().__init__()
        from timm.layers import DropPath
        self.branch, self.drop = branch, DropPath(p)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.branch(x))


def build(options: argparse.Namespace, drop: float, masked: bool = False) -> nn.Module:
    torch.manual_seed(0)
    made: list[nn.Module] = []
    for _ in range(options.blocks):
        made += [blocks.Attention(options.width, max(options.width // 64, 1), causal=True), blocks.FeedForward(options.width)]
    if masked:
        return blocks.Stack([Masked(b, drop) for b in made], options.width)
    return blocks.Stack(made, options.width, drop_path=[drop] * len(made) if drop else 0.0)


def step(model: nn.Module, x: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def run() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return run


def main() -> int:
    parser = argparse.ArgumentParser()
    for name, value in (("blocks", 6), ("width", 256), ("batch", 32), ("tokens", 128), ("repeats", 15)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--drop", type=float, default=0.5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.quick:
        options.blocks, options.repeats = 2, 5
    x = torch.randn(options.batch, options.tokens, options.width)
    built = {"none": build(options, 0.0), "drop": build(options, options.drop), "masked": build(options, options.drop, True)}
    cases = {name: step(model, x) for name, model in built.items()}
    times: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(options.repeats + 2):
        for name, run in cases.items():
            start = time.perf_counter()
            run()
            if turn > 1:                                    # the first two steps make the optimizer's state and warm the caches
                times[name].append(time.perf_counter() - start)
    ratios = {name: statistics.median(t / base for t, base in zip(times[name], times["none"])) for name in ("drop", "masked")}
    print(f"{options.blocks} blocks of width {options.width}, batch {options.batch} x {options.tokens}, {torch.get_num_threads()} threads")
    print(f"no stochastic depth      {statistics.median(times['none']) * 1e3:8.1f} ms")
    print(f"drop_path {options.drop:<4}           {statistics.median(times['drop']) * 1e3:8.1f} ms   ratio {ratios['drop']:.2f}   bar {BAR}")
    print(f"timm's DropPath {options.drop:<4}     {statistics.median(times['masked']) * 1e3:8.1f} ms   ratio {ratios['masked']:.2f}")
    if options.json:
        Path(options.json).write_text(json.dumps({"times": times, "ratios": ratios}, indent=1), encoding="utf-8")
    return 0 if ratios["drop"] <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
