"""deepnorm: how far one step of SGD moves the outputs of 6, 24 and 72 blocks, for DeepNorm and for post-norm.

The source asks that the update of the model be Theta(rate) whatever the depth, as the rate goes to zero: so one step, at a small rate, unclipped. Its
parameters are the matrices of the sublayers, so the update by those alone is held against a threshold: a constant in the depth is read as the largest
of the three at most twice the smallest. The update by all parameters is measured beside it. It is not constant: gains and biases are outside of the
analysis, and what they add grows with depth.
"""

from typing import Any

from skipway.lab.presets._base import Check, Seen, ratio

CLAIM = "One step of SGD on the branches' matrices moves a DeepNorm model by as much at 6, 24 and 72 blocks, and far less than a post-norm model."
SOURCE = "Wang et al., DeepNet: Scaling Transformers to 1,000 Layers, 2022, arXiv 2203.00555, sections 3.2 and 4.2, figure 3"
DEPTHS = (6, 24, 72)
STUDY: dict[str, Any] = {
    "task": "copy", "variants": ["post_norm", "deepnorm"], "depth": list(DEPTHS), "seeds": 5, "steps": 1, "lr": 1e-4, "optimizer": "sgd", "warmup": 0,
    "schedule": "constant", "clip": "none", "weight_decay": 0.0, "init": "xavier", "width": 64, "probes": 2, "measure": ["branch_update", "update"]}


def checks(seen: Seen) -> list[Check]:
    deep, post = ([seen.measure(f"{name} depth={d}", "branch_update") for d in DEPTHS] for name in ("deepnorm", "post_norm"))
    there = [v for v in deep if v is not None]
    spread = ratio(max(there), min(there)) if len(there) == len(DEPTHS) else None
    return [
        Check("update of deepnorm by its branches' matrices, largest over smallest of the three depths", spread, "<=", 2.0),
        Check("the same at 72 blocks, post_norm over deepnorm", ratio(post[-1], deep[-1]), ">=", 2.0)]
