"""Size of the page of a real comparison: 12 variants and 5 seeds, six blocks, all that a report shows.

    python bench/compare_report.py [--variants 12] [--seeds 5] [--depth 6] [--steps 60] [--out DIR]

Trains the first so many of the schemes below on the copy task (one rate, short: a page's size depends on how much was recorded, not on how well it
went), writes the report, and prints the bytes of each file. Exit status 1 where report.html has 2 MB or more.
"""

import argparse
import pathlib
import sys
import tempfile

from skipway import lab
from skipway.report import comparison

VARIANTS = ("pre_norm", "none:normed=true", "post_norm", "rezero", "highway", "deepnorm", "hyper:lanes=4", "mhc:lanes=4", "layer_scale", "sandwich",
            "fixup", "dense_former", "attention_residual", "laurel", "frac", "mudd")
BAR = 2_000_000


def main() -> int:
    """Status 1 where the bar is missed."""
    ask = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, default in (("variants", 12), ("seeds", 5), ("depth", 6), ("steps", 60)):
        ask.add_argument(f"--{name}", type=int, default=default)
    ask.add_argument("--out", type=pathlib.Path)
    given = ask.parse_args()
    chosen = list(VARIANTS[:given.variants])
    study = lab.Study(task="copy", variants=chosen, seeds=given.seeds, depth=given.depth, steps=given.steps, lr=1e-3, batch=8)
    with tempfile.TemporaryDirectory() as spare:
        folder = given.out or pathlib.Path(spare) / "study"
        record = lab.run(study, folder, files=comparison)
        ended = sum(t["state"] in ("finished", "diverged") for t in record["trials"])
        print(f"{len(record['arms'])} variants x {given.seeds} seeds, {given.depth} blocks: {ended} of {len(record['trials'])} trials ended")
        for name in ("report.html", "report.json", "curves.csv"):
            print(f"{name:12} {(folder / name).stat().st_size:>10,} bytes" + (f"  bar {BAR:,}" if name == "report.html" else ""))
        return int((folder / "report.html").stat().st_size >= BAR)


if __name__ == "__main__":
    sys.exit(main())
