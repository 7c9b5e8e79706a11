"""rezero: a network of 110 layers whose branches start at zero, beside the same with norms and without a skip."""

from typing import Any

from skipway.lab.presets._base import Check, Seen, ratio

CLAIM = "A network of 110 layers trains with ReZero, without a norm, and in fewer steps than with norms; without a skip it does not train."
SOURCE = "Bachlechner et al., ReZero is All You Need: Fast Convergence at Large Depth, 2020, arXiv 2003.04887, sections 4 and 6"
STUDY: dict[str, Any] = {"task": "mlp_depth", "variants": ["pre_norm", "rezero", "none"], "depth": 110, "seeds": 3, "steps": 400, "lr": [1e-3, 3e-3],
                         "probes": 2, "evaluate": 10, "held_out": 4}


def checks(seen: Seen) -> list[Check]:
    return [
        Check(f"share of seeds in which rezero learned ({seen.text()})", seen.learned("rezero"), ">=", 1.0),
        Check("share of seeds in which none learned", seen.learned("none"), "<=", 0.0),
        Check("steps until it had learned, rezero over pre_norm", ratio(seen.steps("rezero"), seen.steps("pre_norm")), "<=", 1.0)]
