"""The quantities of a table: their names, how they are drawn, and their numbers as text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Quantity:
    """One chart: `keys` of a row, drawn together. log: over a logarithmic axis. bars: from zero, coloured by the kind of branch."""

    id: str
    title: str
    said: str
    keys: tuple[str, ...]
    names: tuple[str, ...] = ()
    log: bool = False
    bars: bool = False


QUANTITIES = (
    Quantity("magnitude", "Magnitude", "root mean square of the stream after each site, and of what the branch writes", ("after", "branch"),
             ("stream", "branch"), log=True),
    Quantity("ratio", "Write ratio", "magnitude of the branch over that of the stream it joins", ("ratio",), log=True),
    Quantity("influence", "Block influence", "1 - cos(stream before, stream after), mean over tokens", ("influence",), bars=True),
    Quantity("lesion", "Lesion", "change of the loss when the branch is left out", ("lesion",), bars=True),
    Quantity("angle", "Angular distance", "angle between the stream before and after, as a share of pi", ("angle",), bars=True),
    Quantity("cosine", "Cosine", "of branch and stream, mean over tokens", ("cosine",), bars=True),
    Quantity("gradient", "Gradient", "root mean square of the loss's gradient on the stream and on the branch", ("grad_stream", "grad_branch"),
             ("stream", "branch"), log=True),
    Quantity("identity", "Identity share", "share of the gradient on the stream that came down the identity path alone", ("identity",), bars=True),
    Quantity("largest", "Largest magnitude", "largest element of the stream after each site", ("largest", "after"),
             ("largest", "root mean square"), log=True),
    Quantity("rank", "Effective rank", "of the stream over tokens, of at most 128 tokens", ("rank",), bars=True),
    Quantity("rounded", "Rounded away", "share of the updates that the model's dtype rounds away", ("rounded",), bars=True),
    Quantity("nonfinite", "Not finite", "elements of the stream that are NaN or infinite", ("nonfinite",), bars=True),
)
QUIET = {"nonfinite": 0.0, "rounded": 1e-3}         # a chart of nothing but such small numbers says nothing
SHORT = {"self_attention": "attention", "cross_attention": "cross"}


def number(value: Any) -> float | None:
    """A number of the table, which may be a text where it is not finite; None where it was not measured."""
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def measured(rows: Sequence[dict[str, Any]]) -> list[Quantity]:
    """The quantities that the rows have numbers for and that say something."""
    found = []
    for quantity in QUANTITIES:
        values = [number(row.get(key)) for row in rows for key in quantity.keys]
        least = QUIET.get(quantity.id)
        if any(v is not None and (least is None or not abs(v) <= least) for v in values):
            found.append(quantity)
    return found


def text(value: Any, digits: int = 3) -> str:
    """A number in few characters: three digits that count; "" where it was not measured."""
    v = number(value)
    if v is None:
        return ""
    if not math.isfinite(v):
        return "nan" if math.isnan(v) else "inf" if v > 0 else "-inf"
    if v == 0:
        return "0"
    if 1e-3 <= abs(v) < 1e5:
        return f"{v:.{max(0, digits - 1 - math.floor(math.log10(abs(v))))}f}"
    return f"{v:.{max(digits - 2, 0)}e}".replace("e-0", "e-").replace("e+0", "e+").replace("e+", "e")


def runs(numbers: Sequence[int]) -> str:
    """Site numbers in few characters: "5-18, 23, 40-59"."""
    out: list[list[int]] = []
    for n in sorted(numbers):
        if out and n == out[-1][1] + 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in out)
