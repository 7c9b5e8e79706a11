"""Starts of manifold-constrained lanes: how far from pre_norm, whether the lanes part, whether the mixer keeps them apart, whether it can move.

    python bench/mhc_start.py [--steps N] [--seeds N]

Eight feed-forward sublayers of width 32 with 4 lanes learn 256 random labels with Adam (learning rate 3e-3). Columns: `off` is the distance of the
output at the start from that of pre_norm with the same weights, each scaled to length 1 per token; `kept` the second singular value of the mixer
at the start to the power 24, what is left of a difference between lanes after 24 sublayers; `slope` the largest derivative of an entry of the
mixer by a logit; `spread` the distance of the lanes from their mean relative to their size after the steps; `loss` the loss then. Medians over seeds.
Prints its table and has no bar; docs/decisions/0008 reads it.
"""

import argparse
import sys

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import skipway
from skipway.ops.sinkhorn import sinkhorn

DIM, SUBLAYERS, LANES = 32, 8, 4
STARTS = [(phi, alpha, mixer, start) for start in ("even", "turns") for mixer in (0.0, 1.0, 4.0, 6.0, 8.0, 12.0)
          for phi, alpha in ((0.0, 0.01), (0.02, 0.01), (0.02, 1.0)) if (phi, alpha) == (0.02, 0.01) or mixer in (0.0, 8.0)]


def stack(scheme: str, seed: int, **options: float | str) -> skipway.nn.Stack:
    """Feed-forward branches with the same weights for a seed."""
    torch.manual_seed(seed)
    branches = [nn.Sequential(nn.Linear(DIM, 64), nn.GELU(), nn.Linear(64, DIM)) for _ in range(SUBLAYERS)]
    return skipway.nn.Stack(branches, DIM, scheme, **options)


def lanes_of(model: skipway.nn.Stack, x: Tensor) -> Tensor:
    """The lanes behind the last sublayer."""
    held: list[Tensor] = []
    scheme = model.layers[-1].scheme
    leave = scheme.leave
    scheme.leave = lambda stream: held.append(stream) or leave(stream)      # type: ignore[func-returns-value]
    model(x)
    scheme.leave = leave
    return held[0]


def trial(seed: int, steps: int, phi: float, alpha: float, mixer: float, start: str) -> list[float]:
    """off, kept, slope, spread, loss."""
    model, plain = stack("mhc", seed, phi=phi, alpha=alpha, mixer=mixer, start=start), stack("pre_norm", seed)
    x, labels = torch.randn(256, DIM), torch.randint(10, (256,))
    with torch.no_grad():
        a, b = (F.normalize(m(x), dim=-1) for m in (model, plain))
    logits = mixer * torch.eye(LANES)
    slope = torch.autograd.functional.jacobian(sinkhorn, logits).abs().max()
    kept = torch.linalg.svdvals(sinkhorn(logits))[1] ** 24
    head = nn.Linear(DIM, 10)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], 3e-3)
    for _ in range(steps):
        loss = F.cross_entropy(head(model(x)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        lanes = lanes_of(model, x)
    spread = (lanes - lanes.mean(0)).norm() / lanes.norm()
    return [float(v) for v in ((a - b).norm(dim=-1).mean(), kept, slope, spread, loss.detach())]


def main() -> int:
    """Runs all starts and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'start':>6} {'mixer':>6} {'phi':>5} {'alpha':>6} {'off':>9} {'kept':>9} {'slope':>9} {'spread':>9} {'loss':>7}")
    for phi, alpha, mixer, start in STARTS:
        rows = [trial(seed, args.steps, phi, alpha, mixer, start) for seed in range(args.seeds)]
        off, kept, slope, spread, loss = (sorted(column)[len(rows) // 2] for column in zip(*rows))
        print(f"{start:>6} {mixer:6g} {phi:5g} {alpha:6g} {off:9.1e} {kept:9.1e} {slope:9.1e} {spread:9.1e} {loss:7.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
