"""The table behind the interactive page (docs/explore.md): what signal and gradient do at the start, for each depth, rule and initialisation.

    python docs/_explore.py             writes docs/assets/explore-data.js
    python docs/_explore.py --check     leaves with status 1 where a sample of it is not what this version computes

A stack of attention and feed-forward sublayers, width 64, on 4 sequences of 16 random tokens of size 1. `stream` is the root mean square of the state
after each sublayer, from before the first on; `gradient` that of the gradient by the same state, for a random gradient of size 1 at the end, over
the last one. Lanes are taken together.
"""

import argparse
import json
import pathlib
import random
import re
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import skipway
from skipway.nn import Attention, FeedForward, Stack

FILE = pathlib.Path(__file__).parent / "assets" / "explore-data.js"
DIM, HEADS, BATCH, TOKENS = 64, 4, 4, 16
DEPTHS = (3, 6, 12, 24, 48)                 # blocks of two sublayers
RULES: dict[str, str] = {
    "none": "no skip: y = F(x)", "plain": "skip, no norm: x + F(x)", "post_norm": "post-norm: N(x + F(x))", "pre_norm": "pre-norm: x + F(N(x))",
    "output_norm": "output norm: x + N(F(x))", "sandwich": "sandwich: x + N(F(N(x)))", "deepnorm": "DeepNorm: N(alpha x + F(x))",
    "rezero": "ReZero: x + a F(x), a = 0", "layer_scale": "LayerScale: x + g * F(N(x)), g small", "hyper": "hyper-connections, 4 lanes"}
STARTS = {"unit": "keeps the size", "gpt2": "as in GPT-2", "large": "twice too large", "zero": "last matrix zero"}     # the page says which each is
DIGITS = 6


def start(stack: Stack, how: str, sublayers: int) -> None:
    """Fill the branches' matrices."""
    for branch in (layer.branch for layer in stack.layers):
        maps = [m for m in branch.modules() if isinstance(m, nn.Linear)]
        for k, m in enumerate(maps):
            spread = {"unit": m.in_features ** -0.5, "large": 2 * m.in_features ** -0.5, "gpt2": 0.02, "zero": m.in_features ** -0.5}[how]
            if k == len(maps) - 1:
                spread *= {"gpt2": sublayers ** -0.5, "zero": 0.0}.get(how, 1.0)
            nn.init.normal_(m.weight, 0.0, spread)
            if m.bias is not None:
                nn.init.zeros_(m.bias)


def build(rule: str, how: str, blocks: int) -> tuple[Stack, Tensor, Tensor]:
    """The stack, its input and the gradient at its output."""
    torch.manual_seed(0)
    branches = [b for _ in range(blocks) for b in (Attention(DIM, HEADS), FeedForward(DIM, 2 * DIM))]
    stack = Stack(branches, DIM, rule, init=False)
    start(stack, how, 2 * blocks)
    return stack.double().eval(), torch.randn(BATCH, TOKENS, DIM).double(), torch.randn(BATCH, TOKENS, DIM).double()


def curves(rule: str, how: str, blocks: int) -> dict[str, list[float]]:
    """Size of the stream and of its gradient at each depth, walked by the protocol: enter, read, write, leave."""
    stack, x, end = build(rule, how, blocks)
    schemes = [layer.scheme for layer in stack.layers]
    states = [schemes[0].enter(x.requires_grad_())]
    for layer in stack.layers:
        inputs, memo = layer.scheme.read(states[-1])
        states.append(layer.scheme.write(states[-1], layer.branch(inputs), memo))
    for state in states:
        state.retain_grad()
    out = schemes[-1].leave(states[-1])
    if schemes[-1].final_norm:
        out = nn.functional.layer_norm(out, (DIM,))
    out.backward(end)
    gradients = [rms(s.grad) for s in states]
    over = [g / gradients[-1] if gradients[-1] else 0.0 for g in gradients]
    return {"stream": [rounded(rms(s.detach())) for s in states], "gradient": [rounded(g) for g in over]}


def rms(t: Tensor) -> float:
    return float(t.square().mean().sqrt())


def rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def drawing(rule: str) -> str:
    """One block as `skipway check` sees it, without the lines of our own files that perform the joins; "" where nothing is added to anything."""
    stack, x, _ = build(rule, "unit", 2)
    wiring = skipway.trace(stack, x)
    text = wiring.draw("svg") if wiring.streams else ""
    return re.sub(r" \(\w+\.py:\d+\)", "", text[text.find("<svg"):]) if text else ""


def table(say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """All of it."""
    made: dict[str, Any] = {"version": skipway_version(), "depths": DEPTHS, "rules": RULES, "starts": STARTS, "curves": {}, "drawings": {}}
    for rule in RULES:
        say(rule)
        made["drawings"][rule] = drawing(rule)
        for how in STARTS:
            for blocks in DEPTHS:
                made["curves"][f"{rule} {how} {blocks}"] = curves(rule, how, blocks)
    return made


def skipway_version() -> str:
    from importlib.metadata import version
    return version("skipway")


def stored() -> dict[str, Any]:
    """What the file holds."""
    data: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8").partition("=")[2].rstrip().removesuffix(";"))
    return data


def stale(count: int = 12, seed: int = 0) -> list[str]:
    """Names of sampled curves that are further than 1e-4, relative, from what this version computes; and of lists that differ."""
    held = stored()
    wrong = [name for name, now in (("depths", list(DEPTHS)), ("rules", RULES), ("starts", STARTS)) if held[name] != now]
    names = sorted(held["curves"])
    for name in random.Random(seed).sample(names, min(count, len(names))):
        rule, how, blocks = name.split()
        now = curves(rule, how, int(blocks))
        for kind in ("stream", "gradient"):
            if any(abs(a - b) > 1e-4 * max(abs(a), abs(b), 1e-30) for a, b in zip(now[kind], held["curves"][name][kind], strict=True)):
                wrong.append(f"{name}: {kind}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        wrong = stale()
        print("\n".join(wrong) or "docs/assets/explore-data.js is current")
        return int(bool(wrong))
    made = table(lambda text: print(text, flush=True))
    FILE.write_text(f"window.skipwayExplore = {json.dumps(made, separators=(',', ':'))};\n", encoding="utf-8")
    print(f"{FILE}: {FILE.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
