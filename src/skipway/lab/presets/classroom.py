"""classroom: the copy task through six blocks, with and without the skip."""

from typing import Any

from skipway.lab.presets._base import Check, Seen

CLAIM = "Six blocks with a skip learn to copy; without it, and else equal, they do not."
SOURCE = "He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition, 2015, arXiv 1512.03385, figures 1 and 4, at the size of a classroom"
STUDY: dict[str, Any] = {"task": "copy", "variants": ["none:normed=true", "pre_norm"], "depth": 6, "seeds": 3}


def checks(seen: Seen) -> list[Check]:
    return [
        Check("upper end of the interval of the difference in held-out loss, pre_norm beside none", seen.upper("pre_norm"), "<=", 0.0),
        Check(f"share of seeds in which pre_norm learned ({seen.text()})", seen.learned("pre_norm"), ">=", 1.0),
        Check("share of seeds in which none learned", seen.learned("none:normed=true"), "<=", 0.0)]
