"""Time and peak memory of a probe against the plain forward (and forward with backward), interleaved in one process.

    python bench/probe.py [--layers 12] [--width 768] [--batch 4] [--tokens 128] [--repeats 5] [--json FILE]

The model is GPT-2 small without weights of anybody's: 12 layers, 768 wide, random. Bars: time at most 1.5 times, peak memory at most 1.1 times.
Peak memory is read in child processes, one a case, as the most memory that the process held resident while it ran the case three times.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

CASES = ("forward", "probe", "forward+backward", "probe+loss")


def build(options: argparse.Namespace) -> tuple[Any, Any]:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(0)
    config = GPT2Config(n_layer=options.layers, n_embd=options.width, n_head=max(options.width // 64, 1))
    model = GPT2LMHeadModel(config).eval()
    return model, torch.randint(0, config.vocab_size, (options.batch, options.tokens))


def case(name: str, model: Any, ids: Any) -> Callable[[], Any]:
    import torch
    import torch.nn.functional as F

    import skipway

    def loss(out: Any) -> Any:
        return F.cross_entropy(out.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    def forward() -> None:
        with torch.no_grad():
            model(input_ids=ids, use_cache=False)

    def both() -> None:
        loss(model(input_ids=ids, use_cache=False)).backward()
        model.zero_grad(set_to_none=True)

    return {"forward": forward, "forward+backward": both,
            "probe": lambda: skipway.probe(model, input_ids=ids, use_cache=False),
            "probe+loss": lambda: skipway.probe(model, loss=loss, input_ids=ids, use_cache=False)}[name]


def peak(name: str, options: argparse.Namespace) -> float:
    """MiB that a process held at most while it ran one case, less what it held before."""
    sizes = {"layers": options.layers, "width": options.width, "batch": options.batch, "tokens": options.tokens}
    command = [sys.executable, __file__, "--only", name, *(text for k, v in sizes.items() for text in (f"--{k}", str(v)))]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def only(name: str, options: argparse.Namespace) -> None:
    model, ids = build(options)
    run = case(name, model, ids)
    for _ in range(3):
        run()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", help="write the raw samples here")
    parser.add_argument("--only", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        only(options.only, options)
        return
    model, ids = build(options)
    runs = {name: case(name, model, ids) for name in CASES}
    samples: dict[str, list[float]] = {name: [] for name in CASES}
    for name in CASES:
        runs[name]()
    for _ in range(options.repeats):
        for name in CASES:
            start = time.perf_counter()
            runs[name]()
            samples[name].append(time.perf_counter() - start)
    memory = {name: peak(name, options) for name in CASES}
    print(f"{'':<18} {'median s':>9} {'ratio':>6} {'peak MiB':>9} {'ratio':>6}")
    for plain, probed in (("forward", "probe"), ("forward+backward", "probe+loss")):
        ratio = statistics.median(b / a for a, b in zip(samples[plain], samples[probed], strict=True))
        print(f"{plain:<18} {statistics.median(samples[plain]):>9.3f} {'':>6} {memory[plain]:>9.0f}")
        print(f"{probed:<18} {statistics.median(samples[probed]):>9.3f} {ratio:>6.2f} {memory[probed]:>9.0f} {memory[probed] / memory[plain]:>6.2f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"samples": samples, "peak_mib": memory}, file, indent=2)


if __name__ == "__main__":
    main()
