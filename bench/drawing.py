"""The drawing of Llama-3.1-405B (126 layers): seconds and size, folded and fully open, of the file, the terminal text and the page's pieces.

    python bench/drawing.py [--json FILE] [--quick]

The check comes first and is not counted. Bars: the SVG in under 1 s and under 200 kB, also fully open. Exit status 1 if one is missed.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import skipway
from skipway.report import svg
from skipway.report._drawing.characters import write
from skipway.report._drawing.layout import layout

SECONDS, KILOBYTES = 1.0, 200.0
LAYERS = 126


def report() -> dict[str, Any]:
    """The report of a Llama of 405B's widths, without weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=16384, num_attention_heads=128, num_key_value_heads=8, intermediate_size=53248, vocab_size=128256,
                         num_hidden_layers=LAYERS, use_cache=False)
    with torch.device("meta"):
        model = LlamaForCausalLM(config).eval()
    found = skipway.check(model, input_ids=torch.zeros(1, 16, dtype=torch.long, device="meta"))
    if len(found.wiring.sites) != 2 * LAYERS or not found.ok:
        raise SystemExit(f"drawing: {len(found.wiring.sites)} sites, want {2 * LAYERS} and no error")
    return found.to_dict()


def timed(draw: Callable[[], str], repeats: int) -> tuple[list[float], int]:
    """Seconds of each run after a first one, and bytes."""
    size = len(draw().encode())
    samples = []
    for _ in range(repeats):
        began = time.perf_counter()
        draw()
        samples.append(time.perf_counter() - began)
    return samples, size


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the raw samples here")
    parser.add_argument("--quick", action="store_true", help="one repeat")
    options = parser.parse_args(argv)
    data = report()
    wiring, found = data["wiring"], data["findings"]

    def whole_page() -> str:
        return "".join(p.closed + "".join(p.opened) for p in svg.pieces(wiring, found))

    ways: dict[str, Callable[[], str]] = {
        "svg folded": lambda: svg.render(data), "svg open": lambda: svg.render(data, open="all"),
        "text folded": lambda: write(layout(wiring, found)), "text open": lambda: write(layout(wiring, found, "all")), "page pieces": whole_page}
    rows = {name: timed(draw, 1 if options.quick else 5) for name, draw in ways.items()}
    print(f"{'drawing':<12} {'seconds':>8} {'kB':>7}")
    for name, (samples, size) in rows.items():
        print(f"{name:<12} {statistics.median(samples):>8.3f} {size / 1000:>7.1f}")
    bars = {}
    for name in ("svg folded", "svg open"):
        samples, size = rows[name]
        bars[f"{name} in {max(samples):.3f} s at most, bar {SECONDS}"] = max(samples) < SECONDS
        bars[f"{name} {size / 1000:.1f} kB, bar {KILOBYTES:.0f}"] = size < KILOBYTES * 1000
    for told, held in bars.items():
        print(f"{'ok    ' if held else 'MISSED'} {told}")
    if options.json:
        options.json.write_text(json.dumps({name: {"seconds": samples, "bytes": size} for name, (samples, size) in rows.items()}, indent=1))
    return int(not all(bars.values()))


if __name__ == "__main__":
    sys.exit(main())
