"""degradation: plain networks of 20 and 56 layers, and the same with a skip around every layer.

The source counts training error, so that the deeper net's trouble is not overfitting; layers are normed in both, as there. It gives no number that
carries over: here the plain net must lose at least a tenth from 20 to 56 layers, and the skip must keep nine tenths of that from being lost.
"""

from typing import Any

from skipway.lab.presets._base import Check, Seen, less, ratio

CLAIM = "A plain network of 56 layers ends at a higher training loss than one of 20; with a skip around every layer it does not."
SOURCE = "He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition, 2015, arXiv 1512.03385, figures 1 and 6"
STUDY: dict[str, Any] = {"task": "mlp_depth", "variants": ["none:normed=true", "pre_norm"], "depth": [20, 56], "seeds": 3, "steps": 600,
                         "lr": [1e-3, 3e-3], "probes": 2}


def checks(seen: Seen) -> list[Check]:
    plain, skip = ([seen.training(f"{name} depth={d}") for d in (20, 56)] for name in ("none:normed=true", "pre_norm"))
    lost = less(plain[1], plain[0])
    return [
        Check("training loss of the plain network, 56 layers over 20", ratio(plain[1], plain[0]), ">=", 1.1),
        Check("what the skip loses from 20 to 56 layers, as a share of what the plain network loses", ratio(less(skip[1], skip[0]), lost), "<=", 0.1),
        Check("training loss at 56 layers, skip over plain", ratio(skip[1], plain[1]), "<=", 0.9)]
