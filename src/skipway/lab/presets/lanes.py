"""lanes: the product of all mixers of a stack, unconstrained and held to doubly stochastic matrices, after training.

The source finds at 27 billion parameters that the gain of the product stays below about 1.6 with the constraint, and reaches three thousand without.
At this size no such heights are asked for, only which side of 1.6 each is on.
"""

from typing import Any

from skipway.lab.presets._base import Check, Seen

CLAIM = "Training drives the gain of the product of unconstrained mixers past 1.6, and manifold-constrained ones stay within it."
SOURCE = "Xie et al., mHC: Manifold-Constrained Hyper-Connections, 2025, arXiv 2512.24880, figures 3 and 7"
STUDY: dict[str, Any] = {"task": "text", "variants": ["hyper:lanes=4", "mhc:lanes=4"], "depth": 12, "width": 64, "seeds": 3, "steps": 200, "lr": 3e-3,
                         "batch": 8, "probes": 2, "measure": ["composite_gain"]}
BOUND = 1.6


def checks(seen: Seen) -> list[Check]:
    return [
        Check("composite gain of mhc after training", seen.measure("mhc:lanes=4", "composite_gain"), "<=", BOUND),
        Check("composite gain of hyper after training", seen.measure("hyper:lanes=4", "composite_gain"), ">=", BOUND)]
