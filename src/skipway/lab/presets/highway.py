"""highway: networks of 10 and 50 layers with a learned gate between branch and skip, and without a skip, trained by SGD with momentum.

The gates start at a bias of -3, inside the range of the source for deep nets. Layers have no norm, as there.
"""

from typing import Any

from skipway.lab.presets._base import Check, Seen

CLAIM = "Without a skip a network of 10 layers trains and one of 50 does not; with highway gates one of 50 does."
SOURCE = "Srivastava, Greff, Schmidhuber, Highway Networks, 2015, arXiv 1505.00387, figure 1"
HIGHWAY = "highway:bias=-3"
STUDY: dict[str, Any] = {"task": "mlp_depth", "variants": ["none", HIGHWAY], "depth": [10, 50], "seeds": 3, "steps": 800, "lr": [1e-2, 3e-2, 1e-1],
                         "optimizer": "sgd", "probes": 2}


def checks(seen: Seen) -> list[Check]:
    return [
        Check(f"share of seeds in which 10 layers without a skip learned ({seen.text()})", seen.learned("none depth=10"), ">=", 1.0),
        Check("share of seeds in which 50 layers without a skip learned", seen.learned("none depth=50"), "<=", 0.0),
        Check("share of seeds in which 50 layers with highway gates learned", seen.learned(f"{HIGHWAY} depth=50"), ">=", 1.0)]
