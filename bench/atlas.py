"""Runs `skipway check` over released architectures and writes docs/atlas.md and docs/atlas.json.

    python bench/atlas.py [--out build/atlas] [--kind hf|timm|torchvision] [--only PATTERN] [--workers 2] [--limit 150] [--again | --retry]

Every model type that transformers registers for AutoModel, one model of each timm module (a small one), and every torchvision classifier, from
default configurations, without weights and without an input given by hand. Each target is checked in a worker process with a time and a memory limit,
so none can take the run down. Raw reports go to OUT/raw.jsonl as they come; a run that was stopped goes on where it was. `--retry` checks those anew
that could not be checked, `--again` all. OUT/errors.md lists findings of level error. Prints the share that was checked and the wall time; exit
status 1 where a share is below its bar (90 % of transformers, 95 % of timm, all of torchvision) or a target crashed.
"""

import argparse
import json
import os
import pathlib
import re
import sys
import time
from typing import Any

os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from _atlas_pages import errors_page, page, record, summary
from _atlas_pool import serve

ROOT = pathlib.Path(__file__).resolve().parents[1]
BARS = {"hf": 0.90, "timm": 0.95, "torchvision": 1.0}
# Words for small models in timm's names, smallest first.
SMALL = ("atto", "femto", "pico", "nano", "ti", "tiny", "xxs", "xxsmall", "xs", "xsmall", "small", "s", "micro", "mini")


def targets(kind: str | None) -> list[str]:
    """All targets, in a fixed order."""
    found: list[str] = []
    if kind in (None, "hf"):
        from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES
        found += [f"hf:{name}" for name in sorted(MODEL_MAPPING_NAMES)]
    if kind in (None, "timm"):
        import timm
        modules = [(m, [n for n in timm.list_models(module=m) if not n.startswith("test_")]) for m in sorted(timm.list_modules())]
        found += [f"timm:{smallest(names)}" for _, names in modules if names]
    if kind in (None, "torchvision"):
        from torchvision import models
        found += [f"torchvision:{name}" for module in (models, models.video) for name in sorted(models.list_models(module=module))]
    return list(dict.fromkeys(found))


def smallest(names: list[str]) -> str:
    """The model whose name says that it is the smallest: by a word, else by its numbers."""
    def key(name: str) -> tuple[Any, ...]:
        ranks = [SMALL.index(word) for word in re.split(r"[_\W]", name) if word in SMALL]
        return min(ranks, default=len(SMALL)), [int(n) for n in re.findall(r"\d+", name)], name
    return min(names, key=key)


def read(path: pathlib.Path) -> dict[str, dict[str, Any]]:
    """The newest row of each target of an earlier run; a line that was cut off by a kill is passed over."""
    rows: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        rows[row["target"]] = row
    return rows


def told(row: dict[str, Any]) -> str:
    """One line on what came of a target."""
    if "report" in row:
        errors = sum(f["severity"] == "error" for f in row["report"]["findings"])
        return f"{errors} errors" if errors else "checked"
    return " ".join(str(row.get("crash") or row.get("reason")).split())[:200]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "atlas", help="folder of the raw reports")
    parser.add_argument("--kind", choices=tuple(BARS))
    parser.add_argument("--only", metavar="PATTERN", help="only targets that match this regular expression")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=150.0, help="seconds a target may take")
    parser.add_argument("--memory", type=float, default=8.0, help="GiB a worker may hold")
    parser.add_argument("--again", action="store_true", help="check all anew")
    parser.add_argument("--retry", action="store_true", help="check those anew that could not be checked")
    parser.add_argument("--no-pages", action="store_true", help="do not write docs/atlas.md and docs/atlas.json")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    raw = options.out / "raw.jsonl"
    known = {} if options.again else read(raw)
    wanted = [t for t in targets(options.kind) if not options.only or re.search(options.only, t)]
    left = [t for t in wanted if t not in known or (options.retry and "report" not in known[t])]
    began, done = time.monotonic(), 0
    with raw.open("w" if options.again else "a", encoding="utf-8") as file:
        def take(row: dict[str, Any]) -> None:
            nonlocal done
            done += 1
            known[row["target"]] = row
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(f"{done}/{len(left)}  {row['target']}  {row.get('seconds', 0):.1f} s  {told(row)}", file=sys.stderr, flush=True)

        serve(left, options.workers, options.limit, options.memory, options.out / "log.txt", take)
    rows = [known[t] for t in wanted if t in known]
    (options.out / "errors.md").write_text(errors_page(rows), encoding="utf-8")
    whole = not options.kind and not options.only
    if whole and not options.no_pages:
        records = [record(row) for row in rows]
        lines = ",\n".join(json.dumps(r, separators=(",", ":")) for r in records)
        (ROOT / "docs" / "atlas.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
        (ROOT / "docs" / "atlas.md").write_text(page(records, rows), encoding="utf-8")
    print(summary(rows, BARS))
    print(f"{done} checked in this run, {time.monotonic() - began:.0f} s with {options.workers} workers; "
          f"{sum(row.get('seconds', 0) for row in rows):.0f} s of checks in all")
    short = [k for k, bar in BARS.items() if (mine := [r for r in rows if r["target"].startswith(k + ":")])
             and sum("report" in r for r in mine) < bar * len(mine)]
    return int(bool(short) or any("crash" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
