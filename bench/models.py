"""A training step of ours and of transformers, on the same weights and batch, in one process, in turns; and the peak memory, each in its own.

    python bench/models.py [--rounds 15] [--only gpt2 llama vit] [--threads 2] [--json FILE] [--quick]

The step is forward, loss, backward and AdamW, float32, transformers with scaled_dot_product_attention. Three real geometries at 4 blocks: GPT-2 124M
(width 768, 50257 words, 2 x 256 tokens), Llama (width 512, 8 heads, 32000 words, 2 x 256 tokens), ViT-S/16 (width 384, 8 images of 224). Dropout is
off in both, so that the losses of every step can be compared, which are told. Each round runs three models once, in an order drawn anew: ours,
theirs, and theirs again; a ratio is the median over rounds of the time of one by that of theirs in the same round. What theirs against theirs spreads
is what this machine can tell apart. Beside the clock stands the same ratio of processor time, which other programs disturb less. Peak memory is the
child's own resident size at its highest, less what it held before the model was made. Bars: our ratio
at most 1, and the median peak of three children at most theirs. Exit status 1 if one is missed; --json keeps the raw samples.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import skipway

CHILDREN = 3


def words(out: Any, batch: dict[str, Tensor]) -> Tensor:
    """The loss of the next token."""
    logits = out.logits
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), batch["input_ids"][:, 1:].flatten())


def classes(out: Any, batch: dict[str, Tensor]) -> Tensor:
    """The loss of the class of an image; all are of class 0 to 7."""
    return F.cross_entropy(out.logits, torch.arange(len(out.logits)))


def tokens(vocab: int) -> Callable[[], dict[str, Tensor]]:
    return lambda: {"input_ids": torch.randint(0, vocab, (2, 256), generator=torch.Generator().manual_seed(0))}


def images() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(8, 3, 224, 224, generator=torch.Generator().manual_seed(0))}


def reference(name: str) -> nn.Module:
    """transformers' model with random weights."""
    import transformers
    transformers.utils.logging.set_verbosity_error()
    torch.manual_seed(0)
    kinds: dict[str, tuple[str, str, dict[str, Any]]] = {
        "gpt2": ("GPT2Config", "GPT2LMHeadModel", {"n_layer": 4, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "use_cache": False}),
        "llama": ("LlamaConfig", "LlamaForCausalLM", {
            "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 1376, "vocab_size": 32000,
            "use_cache": False}),
        "vit": ("ViTConfig", "ViTForImageClassification", {
            "hidden_size": 384, "num_hidden_layers": 4, "num_attention_heads": 6, "intermediate_size": 1536, "num_labels": 1000})}
    config, model, kwargs = kinds[name]
    made: nn.Module = getattr(transformers, model)._from_config(getattr(transformers, config)(**kwargs), attn_implementation="sdpa")
    return made


CASES: dict[str, tuple[Callable[[], dict[str, Tensor]], Callable[[Any, dict[str, Tensor]], Tensor]]] = {
    "gpt2": (tokens(50257), words), "llama": (tokens(32000), words), "vit": (images, classes)}


class Step:
    """One model with its optimizer."""

    def __init__(self, name: str, model: nn.Module) -> None:
        self.model, (batch, self.loss) = model.train(), CASES[name]
        self.batch = batch()
        self.optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def __call__(self) -> float:
        self.optimizer.zero_grad()
        loss = self.loss(self.model(**self.batch), self.batch)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


def folder_of(name: str, home: str) -> None:
    """The folder that both sides read."""
    reference(name).save_pretrained(home)                   # type: ignore[operator]


def model(name: str, side: str, home: str) -> nn.Module:
    """One side, with the weights of the folder."""
    if side == "ours":
        return skipway.models.load(home)
    import transformers
    transformers.utils.logging.disable_progress_bar()
    kind = json.loads((Path(home) / "config.json").read_text(encoding="utf-8"))["architectures"][0]
    made: nn.Module = getattr(transformers, kind).from_pretrained(home, attn_implementation="sdpa")
    return made


def resident(field: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at most."""
    line = next(line for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def child(name: str, side: str, home: str, threads: int) -> None:
    """Prints the peak of three steps above what was held before the model was made; both sides have imported the same packages."""
    import transformers  # noqa: F401
    torch.set_num_threads(threads)
    before = resident("VmRSS")
    step = Step(name, model(name, side, home))
    for _ in range(3):
        step()
    print(resident("VmHWM") - before)


def peaks(name: str, home: str, threads: int, count: int) -> dict[str, list[int]]:
    """Peak memory of each side, one child after another."""
    found: dict[str, list[int]] = {"ours": [], "theirs": []}
    for _ in range(count):
        for side in found:
            command = [sys.executable, __file__, "--child", name, side, home, "--threads", str(threads)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[side].append(int(done.stdout.split()[-1]))
    return found


def timed(name: str, home: str, rounds: int) -> tuple[dict[str, list[float]], dict[str, list[float]], float]:
    """Seconds of a step of each side, round by round, by the clock and of the processors, and the largest difference of their losses."""
    steps = {side: Step(name, model(name, side.split()[0], home)) for side in ("ours", "theirs", "theirs again")}
    for step in steps.values():
        step()
    found: dict[str, list[float]] = {side: [] for side in steps}
    used: dict[str, list[float]] = {side: [] for side in steps}
    apart, order = 0.0, random.Random(0)
    for _ in range(rounds):
        losses = {}
        for side in order.sample(list(steps), len(steps)):
            start, busy = time.perf_counter(), time.process_time()
            losses[side] = steps[side]()
            used[side].append(time.process_time() - busy)
            found[side].append(time.perf_counter() - start)
        apart = max(apart, abs(losses["ours"] - losses["theirs"]))
    return found, used, apart


def interval(ratios: list[float], draws: int = 2000) -> tuple[float, float]:
    """95 % of the medians of samples drawn anew."""
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def measured(name: str, rounds: int, children: int, threads: int) -> dict[str, Any]:
    """All that is told of one model, raw samples first."""
    with tempfile.TemporaryDirectory() as home:
        folder_of(name, home)
        memory = peaks(name, home, threads, children)
        times, used, apart = timed(name, home, rounds)

    def ratios(seconds: dict[str, list[float]], side: str) -> list[float]:
        return [a / b for a, b in zip(seconds[side], seconds["theirs"])]
    most = {side: statistics.median(values) for side, values in memory.items()}
    return {"seconds": times, "processor_seconds": used, "bytes": memory, "ratio": statistics.median(ratios(times, "ours")),
            "interval": interval(ratios(times, "ours")), "control": interval(ratios(times, "theirs again")),
            "processors": statistics.median(ratios(used, "ours")), "memory": most["ours"] / most["theirs"], "losses_apart": apart}


def good(found: dict[str, Any]) -> bool:
    """Whether the bars are held."""
    return bool(found["ratio"] <= 1.0 and found["memory"] <= 1.0)


def shown(name: str, found: dict[str, Any]) -> str:
    """A line of the table."""
    ours, theirs = (1e3 * statistics.median(found["seconds"][side]) for side in ("ours", "theirs"))
    mine, other = (statistics.median(found["bytes"][side]) / 2 ** 20 for side in ("ours", "theirs"))
    own, control = ("{:.3f} - {:.3f}".format(*found[key]) for key in ("interval", "control"))
    return (f"{name:<8}{ours:9.1f}{theirs:11.1f}{found['ratio']:8.3f}  {own:<15}{control:<15}{found['processors']:9.3f}{mine:10.0f}{other:8.0f}"
            f"{found['memory']:8.3f}   {found['losses_apart']:.1e}" + ("" if good(found) else "   MISSED"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="5 rounds, one child a side")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, side, home = options.child
        child(name, side, home, options.threads)
        return 0
    torch.set_num_threads(options.threads)
    rounds, children = (5, 1) if options.quick else (options.rounds, CHILDREN)
    print("model     ours ms  theirs ms   ratio  95 %           theirs again   processor  ours MiB  theirs   ratio   losses apart")
    kept = {}
    for name in options.only:
        kept[name] = measured(name, rounds, children, options.threads)
        print(shown(name, kept[name]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    return 0 if all(good(found) for found in kept.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
