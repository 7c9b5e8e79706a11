"""Every scheme at its start, depth 12 to 192 sublayers: size of the stream and of the gradient against the published law.

    python bench/laws.py [--seeds 2] [--write]      --write makes docs/laws.md and docs/laws.svg

Each branch is y = W x with entries of W drawn from N(0, 1/dim), dim 256, so that it keeps the size of what it reads and is independent of the
stream: then the laws below hold in expectation, for the RMS of the last state (before a final norm) and for the RMS of the gradient at the stack's
input, for a random gradient of size 1 at its output.

Exit status 1 where a scheme is further than the tolerance from its law.
"""

import argparse
import itertools
import math
import pathlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import skipway

DEPTHS = (12, 24, 48, 96, 192)
DIM = 256
DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"
Number = Callable[[int], float]


class Law(NamedTuple):
    """What is published of a scheme's start: a formula in the number of sublayers S, for the stream and for the gradient alike."""

    formula: str
    size: Number                                    # of the stream and of the gradient
    tolerance: float = 0.1


def harmonic(n: int) -> float:
    return sum(1 / k for k in range(1, n + 1))


def one(_: int) -> float:
    return 1.0


def root(s: int) -> float:
    return math.sqrt(s + 1)


GROWS = Law("sqrt(S + 1)", root)
FLAT = Law("1", one)
LAWS: dict[str, Law] = {
    "none": Law("1, as a product of S random matrices, so with a wide spread", one, tolerance=0.6),
    "plain": Law("2^(S/2)", lambda s: 2.0 ** (s / 2), tolerance=0.6),
    "scaled": Law("1", one, tolerance=0.6),
    **dict.fromkeys(("pre_norm", "sandwich", "output_norm", "macaron", "x0_lambdas", "dense_former", "mudd", "hyper", "frac", "identity_hyper", "mhc",
                     "altup", "laurel", "orthogonal_update"), GROWS),
    **dict.fromkeys(("deepnorm", "keel", "running_mean", "branch_norm", "rezero", "skip_init", "zero_tanh", "fixup", "pro_res"), FLAT),
    **dict.fromkeys(("post_norm", "admin"), Law("1", one, tolerance=0.2)),                  # finite width: the drift halves where dim is doubled
    "ngpt": Law("1 / sqrt(dim), the unit sphere", lambda s: DIM ** -0.5),
    "layer_norm_scaling": Law("sqrt(1 + 2 H(S/2)), H the harmonic numbers", lambda s: math.sqrt(1 + 2 * harmonic(s // 2))),
    "mix_norm": Law("sqrt(1 + 3 S / 4)", lambda s: math.sqrt(1 + 0.75 * s)),
    "sub_norm": Law("sqrt(1 + S ln S)", lambda s: math.sqrt(1 + s * math.log(s))),
    "gpt2_init": Law("sqrt(1 + 0.02^2 dim)", lambda s: math.sqrt(1 + 0.0004 * DIM)),
    "complete_p": Law("sqrt(1 + 16 / S), for a base of 2 blocks", lambda s: math.sqrt(1 + 16 / s)),
    "layer_scale": Law("sqrt(1 + S init^2), init 0.1, from 19 blocks on 1e-5 and 1e-6", lambda s: math.sqrt(1 + s * (0.01 if s <= 36 else 1e-10))),
    "reversible": Law("sqrt(1 + S / 4), the mean of two lanes", lambda s: math.sqrt(1 + s / 4)),
    "review_gate": Law("sqrt(1 + S / 4), half of each branch", lambda s: math.sqrt(1 + s / 4)),
    "depth_mup": Law("(1 + 1/S)^(S/2), towards sqrt(e)", lambda s: (1 + 1 / s) ** (s / 2)),
    "attention_residual": Law("1 / sqrt(S + 1)", lambda s: 1 / root(s)),
}

SHOWN = {"pre_norm, sandwich": ("pre_norm", "sandwich"), "mix_norm": ("mix_norm",), "layer_norm_scaling": ("layer_norm_scaling",),
         "depth_mup": ("depth_mup",), "gpt2_init": ("gpt2_init",), "post_norm, deepnorm, rezero: 1": ("post_norm", "deepnorm", "rezero"),
         "attention_residual": ("attention_residual",)}           # lines of the picture: schemes of one law
COLORS = ("#1f5fbf", "#9a5b00", "#2e7d32", "#b3261e", "#6a4fb0", "#6d4c41", "#a83a72")


class Linear(nn.Linear):
    """y = W x."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim, dim, bias=False)
        nn.init.normal_(self.weight, 0.0, dim ** -0.5)

    def weights(self, kind: str) -> list[Tensor]:
        return [self.weight] if kind == "output" else []

    def inner_norm(self, make: Any) -> None:
        """Nothing stands before its one matrix; a norm of what is normed already changes nothing."""


def measured(name: str, depth: int, dim: int, seed: int) -> tuple[float, float]:
    """RMS of the last state and of the gradient at the input."""
    torch.manual_seed(seed)
    stack = skipway.nn.Stack([Linear(dim) for _ in range(depth)], dim, name, final_norm=False).double()
    x = torch.randn(64, dim, dtype=torch.float64)
    x = (x / x.square().mean(-1, keepdim=True).sqrt()).requires_grad_()
    y = stack(x)
    given = torch.randn_like(y)
    (gradient,) = torch.autograd.grad(y, x, given)
    return size(y), size(gradient) / size(given)


def size(x: Tensor) -> float:
    return float(x.detach().square().mean().sqrt())


def mean(values: list[float]) -> float:
    """Geometric mean."""
    return math.exp(sum(math.log(v) for v in values) / len(values))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write docs/laws.md and docs/laws.svg")
    options = parser.parse_args()
    rows: dict[str, tuple[list[float], list[float]]] = {}
    for name in skipway.schemes.names():
        found = [[measured(name, s, DIM, seed) for seed in range(options.seeds)] for s in DEPTHS]
        rows[name] = [mean([v[0] for v in at]) for at in found], [mean([v[1] for v in at]) for at in found]
        print(f"{name:<26}", verdict(name, rows[name]), flush=True)
    if options.write:
        write(rows, options)
    missed = [n for n in rows if n in LAWS and worst(n, rows[n]) > LAWS[n].tolerance]
    print(f"{len(rows)} schemes, {sum(n in LAWS for n in rows)} with a law, {len(missed)} off it{': ' if missed else ''}{', '.join(missed)}")
    return int(bool(missed))


def worst(name: str, row: tuple[list[float], list[float]]) -> float:
    """Largest relative distance from the law, over both curves and all depths."""
    law = LAWS[name]
    return max(abs(math.log(got / law.size(s))) for curve in row for s, got in zip(DEPTHS, curve))


def verdict(name: str, row: tuple[list[float], list[float]]) -> str:
    shown = "  ".join(f"{v:.3g}" for v in row[0]) + "   gradient  " + "  ".join(f"{v:.3g}" for v in row[1])
    return shown + (f"   off by {worst(name, row):.1%} (at most {LAWS[name].tolerance:.0%})" if name in LAWS else "   no law")


def write(rows: dict[str, tuple[list[float], list[float]]], options: argparse.Namespace) -> None:
    """The page and its picture."""
    head = "| scheme | law | " + " | ".join(f"S = {s}" for s in DEPTHS) + " | worst |\n|---|---|" + "---|" * (len(DEPTHS) + 1)
    parts = ["# Laws of the start", "", f"<!-- Generated by `python bench/laws.py --write` (width {DIM}, {options.seeds} seeds). -->", "",
             *(__doc__ or "").split("\n\n")[2].split("\n"), "", "![stream and gradient against depth](laws.svg)", ""]
    for title, which in (("RMS of the last state", 0), ("RMS of the gradient at the input", 1)):
        parts += [f"## {title}", "", head]
        for name, row in rows.items():
            law = LAWS.get(name)
            formula = "none published" if law is None else law.formula
            cells = " | ".join(f"{v:.3g}" for v in row[which])
            parts.append(f"| {name} | {formula} | {cells} | {'' if law is None else f'{worst(name, row):.1%}'} |")
        parts.append("")
    (DOCS / "laws.md").write_text("\n".join(parts), encoding="utf-8")
    draw(rows)


def draw(rows: dict[str, tuple[list[float], list[float]]]) -> None:
    """Measured points on the laws' lines, stream on the left, gradient on the right; each law is named once, at the end of its line."""
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "skipway", "font.size": 11})
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(1, 2, figsize=(9.6, 4.4), sharey=True, layout="constrained")
    for which, (axis, title) in enumerate(zip(axes, ("RMS of the last state", "RMS of the gradient at the input"))):
        for k, names in enumerate(SHOWN.values()):
            law = LAWS[names[0]]
            axis.plot(DEPTHS, [law.size(s) for s in DEPTHS], color=COLORS[k], linewidth=1)
            for name in names:
                axis.plot(DEPTHS, rows[name][which], "o", color=COLORS[k], markersize=4)
        axis.set(xscale="log", yscale="log", xlabel="sublayers S", xticks=DEPTHS, yticks=(0.1, 1, 10))
        axis.set_title(title, fontsize=12)
        axis.set_xticklabels([str(s) for s in DEPTHS])
        axis.set_yticklabels(["0.1", "1", "10"])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    ends = [LAWS[names[0]].size(DEPTHS[-1]) for names in SHOWN.values()]
    for k, (label, at) in enumerate(zip(SHOWN, apart(ends, 1.36))):
        axes[1].annotate(label, (DEPTHS[-1], ends[k]), xytext=(DEPTHS[-1] * 1.32, at), color=COLORS[k], va="center", annotation_clip=False,
                         arrowprops={"arrowstyle": "-", "color": COLORS[k], "linewidth": 0.6, "shrinkA": 1, "shrinkB": 3})
    figure.savefig(DOCS / "laws.svg", metadata={"Date": None})


def apart(ends: list[float], least: float) -> list[float]:
    """Heights of labels, in the order of their lines' ends and at least a factor of `least` from one another."""
    order = sorted(range(len(ends)), key=lambda k: ends[k])
    made = list(ends)
    for _ in range(200):
        for low, high in itertools.pairwise(order):
            short = least / (made[high] / made[low])
            if short > 1:
                made[low], made[high] = made[low] / math.sqrt(short), made[high] * math.sqrt(short)
    return made


if __name__ == "__main__":
    sys.exit(main())
