"""skipway against other inspectors of a model's structure, on the same model in the same process, run in turns.

    python bench/inspectors.py [--json FILE] [--quick]

Peers: torchinfo, torchview, torchlens, torch.fx and torch.export, each at its own default depth of detail. A peer that fails shows its error
in one line. Bar: `skipway.trace` and `skipway.check` are faster than torchlens, torchview and torch.export. Exit status 1 if it is missed.
"""

import argparse
import io
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import skipway

MUST_BEAT = ("torchview", "torchlens", "torch.export")
Tool = Callable[[nn.Module, Tensor], object]


class Layer(nn.Module):
    """A pre-norm layer."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out, self.heads = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), heads
        self.ffn = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def attend(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y: Tensor = self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return y

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x))
        y: Tensor = x + self.ffn(self.norm2(x))
        return y


class Toy(nn.Module):
    """Four layers between an embedding and a head."""

    def __init__(self, dim: int = 64, layers: int = 4) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(100, dim), nn.Parameter(torch.randn(32, dim) * 0.02)
        self.layers, self.norm, self.head = nn.ModuleList([Layer(dim, 4) for _ in range(layers)]), nn.LayerNorm(dim), nn.Linear(dim, 100, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.tok(input_ids) + self.pos[: input_ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def gpt2() -> nn.Module:
    """GPT-2 small, random weights."""
    from transformers import GPT2Config, GPT2Model

    return GPT2Model(GPT2Config(use_cache=False)).eval()


def run_torchinfo(model: nn.Module, ids: Tensor) -> object:
    import torchinfo

    return torchinfo.summary(model, input_data=ids, verbose=0)


def run_torchview(model: nn.Module, ids: Tensor) -> object:
    import torchview

    return torchview.draw_graph(model, input_data=ids)


def run_torchlens(model: nn.Module, ids: Tensor) -> object:
    import torchlens

    # Releases since 2.31 call it `trace`; `log_forward_pass` is its name before.
    capture = getattr(torchlens, "trace", None) or torchlens.log_forward_pass
    return capture(model, ids)


def run_fx(model: nn.Module, ids: Tensor) -> object:
    return torch.fx.symbolic_trace(model)


def run_hf_fx(model: nn.Module, ids: Tensor) -> object:
    from transformers.utils import fx

    return fx.symbolic_trace(model, input_names=["input_ids"])


def run_export(model: nn.Module, ids: Tensor) -> object:
    return torch.export.export(model, (ids,))


TOOLS: dict[str, Tool] = {
    "forward alone": lambda model, ids: model(ids),
    "skipway.trace": lambda model, ids: skipway.trace(model, ids),
    "skipway.check": lambda model, ids: skipway.check(model, ids),
    "torchinfo": run_torchinfo, "torchview": run_torchview, "torchlens": run_torchlens, "torch.fx": run_fx, "torch.export": run_export,
}


def once(tool: Tool, model: nn.Module, ids: Tensor) -> float:
    """Seconds of one call, with what the tool prints thrown away."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), torch.no_grad():
        began = time.perf_counter()
        tool(model, ids)
        return time.perf_counter() - began


def in_turns(model: nn.Module, ids: Tensor, repeats: int) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Samples of each tool, all run in turns after a warm-up, and the errors of those that fail."""
    tools, errors = dict(TOOLS), {}
    if "transformers" in type(model).__module__:
        tools["transformers fx tracer"] = run_hf_fx
    samples: dict[str, list[float]] = {}
    for turn in range(repeats + 1):
        for name, tool in tools.items():
            if name in errors:
                continue
            try:
                spent = once(tool, model, ids)
            except Exception as error:                  # a peer's failure is a result
                errors[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:110]}"
                continue
            if turn:
                samples.setdefault(name, []).append(spent)
    return samples, errors


def table(title: str, samples: dict[str, list[float]], errors: dict[str, str]) -> tuple[list[str], bool]:
    """Lines of the table, and whether the bar is held."""
    middle = {name: statistics.median(s) for name, s in samples.items()}
    trace, check = middle.get("skipway.trace"), middle.get("skipway.check")
    lines = [title, f"  {'tool':<24} {'median ms':>10} {'min':>8} {'max':>8} {'to trace':>9} {'to check':>9}"]
    for name, value in sorted(middle.items(), key=lambda pair: pair[1]):
        ratios = [f"{value / ours:>9.2f}" if ours else f"{'-':>9}" for ours in (trace, check)]
        lines.append(f"  {name:<24} {1000 * value:>10.1f} {1000 * min(samples[name]):>8.1f} {1000 * max(samples[name]):>8.1f} {' '.join(ratios)}")
    lines += [f"  {name:<24} failed: {told}" for name, told in errors.items()]
    held = trace is not None and check is not None
    beaten = [name for name in MUST_BEAT if name in middle]
    held = held and all(max(trace or 0.0, check or 0.0) < middle[name] for name in beaten)
    lines.append(f"  {'ok    ' if held else 'MISSED'} trace and check are faster than {', '.join(beaten)}")
    return lines, held


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the raw samples here")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, help="threads of torch; set 1 on a machine that others use, where waiting threads stall the peers")
    parser.add_argument("--quick", action="store_true", help="two repeats")
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    if options.threads:
        torch.set_num_threads(options.threads)
    repeats = 2 if options.quick else options.repeats
    makers: dict[str, Callable[[], nn.Module]] = {"4-layer toy, 16 tokens": lambda: Toy().eval(), "GPT-2 small, 16 tokens": gpt2}
    raw: dict[str, Any] = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {repeats} repeats")
    held = True
    for title, make in makers.items():
        samples, errors = in_turns(make(), torch.randint(0, 100, (1, 16)), repeats)
        lines, ok = table(title, samples, errors)
        held &= ok
        raw[title] = {"samples": samples, "errors": errors}
        print("\n".join(lines))
    if options.json:
        options.json.write_text(json.dumps(raw, indent=1))
    return int(not held)


if __name__ == "__main__":
    sys.exit(main())
