"""warmup: twelve blocks with the norm behind the sum, with and without a warm-up of the learning rate, and with the norm in front of the branch.

All at one rate, the middle one of the task's own grid. The source warms up for the first part of training; here it is a quarter of it.
"""

from typing import Any

from skipway.lab.presets._base import Check, Seen

CLAIM = "Twelve post-norm blocks stall without a warm-up at a rate at which pre-norm blocks train without one; with a warm-up they train."
SOURCE = "Xiong et al., On Layer Normalization in the Transformer Architecture, 2020, arXiv 2002.04745, figures 2 and 4"
STEPS = 400
STUDY: dict[str, Any] = {
    "task": "copy", "depth": 12, "seeds": 3, "steps": STEPS, "lr": 3e-3, "warmup": 0, "schedule": "linear", "clip": "none",
    "variants": [{"name": "pre_norm", "variant": "pre_norm"}, {"name": "post_norm", "variant": "post_norm"},
                 {"name": "post_norm with warm-up", "variant": "post_norm", "warmup": STEPS // 4}]}


def checks(seen: Seen) -> list[Check]:
    return [
        Check(f"share of seeds in which pre_norm learned without warm-up ({seen.text()})", seen.learned("pre_norm"), ">=", 1.0),
        Check("share of seeds in which post_norm learned without warm-up", seen.learned("post_norm"), "<=", 0.0),
        Check("share of seeds in which post_norm learned with a warm-up", seen.learned("post_norm with warm-up"), ">=", 1.0)]
