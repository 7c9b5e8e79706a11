"""Llama-3.1-405B on the meta device: `skipway.check` against the bare abstract forward, memory, and time against layers.

    python bench/scale.py [--json FILE] [--quick]

Both are run in turns in one process, a warm-up first; the figure is the median. Bars: check at most 2.5 times the bare forward, peak memory
under 2 GiB, time linear in layers. Exit status 1 if a bar is missed.
"""

import argparse
import json
import platform
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import skipway

RATIO, MEMORY_GIB, LINEAR = 2.5, 2.0, 1.5
LLAMA_405B = {"hidden_size": 16384, "num_attention_heads": 128, "num_key_value_heads": 8, "intermediate_size": 53248, "vocab_size": 128256}
LAYERS = 126


def build(layers: int) -> nn.Module:
    """A Llama of 405B's widths without weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**LLAMA_405B, num_hidden_layers=layers, use_cache=False)
    with torch.device("meta"):
        return LlamaForCausalLM(config).eval()


def bare(model: nn.Module, inputs: dict[str, Any]) -> float:
    """Seconds of one abstract forward."""
    began = time.perf_counter()
    with torch.no_grad():
        model(**inputs)
    return time.perf_counter() - began


def checked(model: nn.Module, inputs: dict[str, Any], layers: int) -> float:
    """Seconds of one check; the wiring must be right, or the time means nothing."""
    began = time.perf_counter()
    report = skipway.check(model, **inputs)
    spent = time.perf_counter() - began
    sites = report.wiring.sites
    if len(sites) != 2 * layers or {s.placement for s in sites} != {"pre"} or not report.ok:
        raise SystemExit(f"scale: {len(sites)} sites, {[f.code for f in report.findings]}; want {2 * layers} pre-norm sites and no error")
    return spent


def in_turns(layers: int, repeats: int, tokens: int) -> dict[str, Any]:
    """Raw samples of both, run in turns after one warm-up of each."""
    model = build(layers)
    # With a ready mask the model asks for no values of its own, which the bare forward on meta could not give.
    mask = torch.ones(1, 1, tokens, tokens, dtype=torch.bool, device="meta")
    inputs = {"input_ids": torch.zeros(1, tokens, dtype=torch.long, device="meta"), "attention_mask": mask, "use_cache": False}
    samples: dict[str, list[float]] = {"bare": [], "check": []}
    for turn in range(repeats + 1):
        pair = bare(model, inputs), checked(model, inputs, layers)
        if turn:
            samples["bare"].append(pair[0])
            samples["check"].append(pair[1])
    return {"layers": layers, "tokens": tokens, **samples}


def medians(row: dict[str, Any]) -> tuple[float, float]:
    """Median seconds of the bare forward and of the check."""
    return statistics.median(row["bare"]), statistics.median(row["check"])


def r_squared(xs: list[float], ys: list[float]) -> float:
    """Of the straight line through the points."""
    return statistics.correlation(xs, ys) ** 2


def peak_gib() -> float:
    """Peak resident memory of this process; macOS counts bytes, others KiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2 ** (30 if platform.system() == "Darwin" else 20)


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the raw samples here")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--quick", action="store_true", help="one repeat, and fewer layers on the way")
    options = parser.parse_args(argv)
    repeats, ladder = (1, [8, 32]) if options.quick else (5, [8, 16, 32, 63])
    rows = [in_turns(n, repeats if n == LAYERS else min(repeats, 3), options.tokens) for n in [*ladder, LAYERS]]
    print(f"{'layers':>6} {'bare s':>8} {'check s':>8} {'ratio':>6} {'check ms a layer':>17}")
    for row in rows:
        b, c = medians(row)
        print(f"{row['layers']:>6} {b:>8.3f} {c:>8.3f} {c / b:>6.2f} {1000 * c / row['layers']:>17.2f}")
    b, c = medians(rows[-1])
    print("bare samples  " + " ".join(f"{x:.3f}" for x in rows[-1]["bare"]))
    print("check samples " + " ".join(f"{x:.3f}" for x in rows[-1]["check"]))
    slow = (c - medians(rows[-2])[1]) / (LAYERS - rows[-2]["layers"])
    fast = (medians(rows[1])[1] - medians(rows[0])[1]) / (rows[1]["layers"] - rows[0]["layers"])
    fit, memory = r_squared([float(r["layers"]) for r in rows], [medians(r)[1] for r in rows]), peak_gib()
    bars = {
        f"ratio {c / b:.2f}, bar {RATIO}": c / b <= RATIO,
        f"peak memory {memory:.2f} GiB, bar {MEMORY_GIB:.0f}": memory < MEMORY_GIB,
        f"a layer more costs {slow / fast:.2f} times as much at the end as at the start (r^2 {fit:.4f}), bar {LINEAR}": slow / fast <= LINEAR}
    for told, held in bars.items():
        print(f"{'ok    ' if held else 'MISSED'} {told}")
    if options.json:
        raw = {"torch": torch.__version__, "peak_gib": memory, "ratio": c / b, "r_squared": fit, "rows": rows}
        options.json.write_text(json.dumps(raw, indent=1))
    return int(not all(bars.values()))


if __name__ == "__main__":
    sys.exit(main())
