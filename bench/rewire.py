"""What `plain` on every join of a model costs: GPT-2 of 12 layers, forward + backward, eager and compiled, against the model itself.

    python bench/rewire.py [--rounds N] [--batch B] [--tokens T] [--eager | --compiled] [--quick] [--json FILE]

One process, the variants run in turn in each round; the figure is the median of the rounds' ratios, raw times are kept. Compiled is torch.compile
with fullgraph=True (a graph break is an error) and inductor.
"""

import argparse
import copy
import json
import pathlib
import statistics
import sys
import time
import warnings
from typing import Any

BAR = 1.03


def timed(step: Any) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def main() -> int:
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--quick", action="store_true", help="five rounds of one row")
    parser.add_argument("--json", type=pathlib.Path)
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rounds, chosen.batch = 5, 1

    import torch
    import transformers

    import skipway
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False)).eval()
    ids = torch.randint(0, 50257, (chosen.batch, chosen.tokens))
    other = copy.deepcopy(model)
    skipway.rewire(other, ids).sites(count=24).plain().apply()
    assert torch.equal(model(ids).logits, other(ids).logits)

    def step(m: Any) -> Any:
        def run() -> None:
            m(ids).logits.square().mean().backward()
        return run

    found: dict[str, Any] = {}
    kinds = [k for k in ("eager", "compiled") if getattr(chosen, k) or not (chosen.eager or chosen.compiled)]
    for kind in kinds:
        pair = [m if kind == "eager" else torch.compile(m, fullgraph=True) for m in (model, other)]
        steps = [step(m) for m in pair]
        for s in steps:
            s()
            s()
        times: list[tuple[float, float]] = []
        for k in range(chosen.rounds):
            a, b = (0, 1) if k % 2 == 0 else (1, 0)
            pairs = {a: timed(steps[a])}
            pairs[b] = timed(steps[b])
            times.append((pairs[0], pairs[1]))
        ratio = statistics.median(b / a for a, b in times)
        found[kind] = {"ratio": ratio, "times": times}
        own = 1e3 * statistics.median(a for a, _ in times)
        print(f"{kind:<9} plain on 24 joins: {ratio:.3f} of the model's own time (median of {chosen.rounds}; the model {own:.0f} ms)", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1))
    return int(any(f["ratio"] > BAR for f in found.values()))


if __name__ == "__main__":
    sys.exit(main())
