"""Residual rules against the plain residual and against public modules of the same rules, in one process, in turns.

    python bench/schemes.py [--compiled] [--rounds N] [--only SCHEME ...] [--processes N] [--json FILE] [--quick]

A 6 x 256 decoder (6 blocks of causal self-attention with 4 heads and a GELU feed-forward of 4 x 256), batch 2 x 128, float32, 2 threads: forward and
backward. Each round runs every model once, in an order of its own; a ratio is the median over rounds of the time of one model by that of another in
the same round. With --processes the whole is done again in fresh processes, whose ratios differ, and their median counts. Peak memory is the largest
sum of live allocations in one forward and backward, from the profiler.
Bars: the ratio to pre_norm (BARS), and against each peer faster and no heavier. Exit status 1 if one is missed. --json keeps the raw samples.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from _scheme_peers import peers
from torch import Tensor, nn
from torch.nn import functional as F

import skipway

DIM, BLOCKS, HEADS, BATCH, TOKENS = 256, 6, 4, 2, 128
BARS: dict[str, tuple[str, dict[str, Any], float | None]] = {
    "hyper static": ("hyper", {"dynamic": False}, 1.2), "hyper dynamic": ("hyper", {}, 1.4), "identity_hyper": ("identity_hyper", {}, 1.3),
    "mhc": ("mhc", {}, 1.5), "attention_residual": ("attention_residual", {}, 1.6),
    "block_attention_residual": ("block_attention_residual", {"every": 1}, 1.25),
    "gated_residual": ("gated_residual", {}, None)}
PLAIN = "pre_norm"


class Attention(nn.Module):
    """Causal self-attention."""

    role = "self_attention"

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, DIM))    # type: ignore[no-any-return]


class FeedForward(nn.Sequential):
    """GELU feed-forward."""

    role = "ffn"

    def __init__(self) -> None:
        super().__init__(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))


def branches() -> list[nn.Module]:
    """The branches of the decoder, with the same weights each time."""
    torch.manual_seed(0)
    return [Attention() if k % 2 == 0 else FeedForward() for k in range(2 * BLOCKS)]


def ours(scheme: str, options: dict[str, Any]) -> nn.Module:
    """The decoder under one of our schemes."""
    return skipway.nn.Stack(branches(), DIM, scheme, **options)


def step(model: nn.Module, x: Tensor) -> None:
    """Forward and backward."""
    x.grad = None
    for p in model.parameters():
        p.grad = None
    model(x).square().mean().backward()


def peak(run: Callable[[], None]) -> int:
    """Largest sum of live allocations, in bytes, above what was live before."""
    run()
    with torch.profiler.profile(profile_memory=True) as profile:
        run()
    held = most = 0
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def measured(models: dict[str, nn.Module], rounds: int, seed: int = 0) -> dict[str, list[float]]:
    """Seconds of each model in each round."""
    x = torch.randn(BATCH, TOKENS, DIM, requires_grad=True)
    for model in models.values():
        for _ in range(3):
            step(model, x)
    order, shuffled = list(models), random.Random(seed)
    samples: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(rounds):
        shuffled.shuffle(order)
        for name in order:
            start = time.perf_counter()
            step(models[name], x)
            samples[name].append(time.perf_counter() - start)
    return samples


def median(values: Iterable[float]) -> float:
    """The middle value; of an even number, the lower of the two."""
    held = sorted(values)
    return held[(len(held) - 1) // 2]


def ratio(a: list[float], b: list[float]) -> float:
    """Median over rounds of a by b."""
    return median(p / q for p, q in zip(a, b))


def main() -> int:
    """Runs the comparison and prints its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--compiled", action="store_true", help="torch.compile each model first")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--only", nargs="*", default=None, choices=list(BARS), metavar="SCHEME")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--processes", type=int, default=1, help="how many processes, one after another")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="five rounds")
    args = parser.parse_args()
    found = elsewhere(args.processes) if args.processes > 1 else here(args)
    missed = report(found["seconds"], found["peak_bytes"], found["pairs"])
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))
    return 1 if missed else 0


def here(args: argparse.Namespace) -> dict[str, Any]:
    """What --json keeps: samples of each model in one run, their peak memory, and which are compared with which."""
    torch.set_num_threads(2)
    models, pairs = {PLAIN: ours(PLAIN, {})}, []
    for name in args.only or BARS:
        models[name] = ours(*BARS[name][:2])
        for peer, model in ({} if args.no_peers else peers(name, branches, DIM)).items():
            models[peer] = model
            pairs.append((name, peer))
    x = torch.randn(BATCH, TOKENS, DIM, requires_grad=True)
    memory = {name: peak(lambda model=model: step(model, x)) for name, model in models.items()}     # type: ignore[misc]
    if args.compiled:
        for model in models.values():
            model.compile(fullgraph=True)
    runs = [measured(models, 5 if args.quick else args.rounds)]
    return {"compiled": args.compiled, "torch": torch.__version__, "seconds": runs, "peak_bytes": memory, "pairs": pairs}


def elsewhere(processes: int) -> dict[str, Any]:
    """The same of several processes with the arguments of this one, but for --processes and --json."""
    found: list[dict[str, Any]] = []
    for k in range(processes):
        print(f"process {k + 1} of {processes}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            at = Path(folder) / "samples.json"
            done = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--processes", "1", "--json", str(at)], stdout=subprocess.DEVNULL)
            if not at.exists():
                raise SystemExit(f"process {k + 1} ended with status {done.returncode} before it had samples; run it alone to see why")
            found.append(json.loads(at.read_text()))
    return found[0] | {"seconds": [run for one in found for run in one["seconds"]]}


def report(runs: list[dict[str, list[float]]], memory: dict[str, int], pairs: list[tuple[str, str]]) -> int:
    """Prints the table; the number of bars that were missed."""
    missed = 0
    print(f"{'model':34} {'ms':>7} {'to plain':>9} {'bar':>6} {'peak MiB':>9}" + ("  in each process" if len(runs) > 1 else ""))
    for name in runs[0]:
        bar = BARS[name][2] if name in BARS else None
        each = [ratio(run[name], run[PLAIN]) for run in runs]
        times = median(each)
        missed += bar is not None and times > bar
        print(f"{name:34} {1e3 * median(median(run[name]) for run in runs):7.1f} {times:9.3f} {bar or '':>6} {memory[name] / 2**20:9.1f}"
              + ("  " + " ".join(f"{t:.3f}" for t in each) if len(runs) > 1 else "") + ("  MISSED" if bar is not None and times > bar else ""))
    for name, peer in pairs:
        faster, lighter = median(ratio(run[name], run[peer]) for run in runs), memory[name] / memory[peer]
        missed += faster >= 1 or lighter > 1
        print(f"{name} / {peer}: time {faster:.3f}, peak memory {lighter:.3f}" + ("  MISSED" if faster >= 1 or lighter > 1 else ""))
    return missed


if __name__ == "__main__":
    sys.exit(main())
