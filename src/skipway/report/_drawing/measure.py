"""How wide text is, without a font: widths of a common sans-serif face, on the wide side so that other faces fit as well."""

import unicodedata
from collections.abc import Callable

from skipway.report._escape import middle, plain

# Thousandths of the font size for the characters from space to "~".
_WIDTHS = (
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584,
    584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667,
    611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500,
    722, 500, 500, 500, 334, 260, 334, 584)
_WIDER = 1.18           # of other common faces against this one
_FIXED = 0.605          # of a character in a fixed-width face


def wide(char: str) -> bool:
    """Whether a character takes two columns of a terminal."""
    return unicodedata.east_asian_width(char) in "WF"


def width(text: str, size: float, fixed: bool = False) -> float:
    """Pixels that `text` takes at most, in a sans-serif or a fixed-width face of `size` pixels."""
    if fixed:
        return size * sum(2 * _FIXED if wide(c) else _FIXED for c in text)
    return size * sum(_WIDER * _WIDTHS[ord(c) - 32] / 1000 if " " <= c <= "~" else 1.05 if wide(c) else 0.72 for c in text)


def fitted(text: str, size: float, room: float, fixed: bool = False) -> str:
    """The text as it can be shown, its middle left out where it is wider than `room` pixels."""
    return fit(text, room, lambda t: width(t, size, fixed))


def fit(text: str, room: float, size: Callable[[str], float]) -> str:
    """The text, made safe, its middle left out where it takes more than `room` by `size`; "" where nothing of it fits."""
    shown = plain(text)
    if size(shown) <= room:
        return shown
    low, high = 0, len(shown)
    while low < high:
        half = (low + high + 1) // 2
        if size(middle(shown, half)) <= room:
            low = half
        else:
            high = half - 1
    return middle(shown, low)


def wrapped(text: str, room: float, size: Callable[[str], float], first: float | None = None) -> list[str]:
    """Lines that take at most `room` by `size`, the first one at most `first`. Words are kept whole where they fit.

    `size` of a text is the sum of those of its characters. The text is made safe, and cut in the middle at 2000 characters.
    """
    out, used, limit = [""], 0.0, room if first is None else first
    blank = size(" ")
    for word in plain(text, 2000).split(" "):
        long = size(word)
        if out[-1] and used + blank + long <= limit:
            out[-1], used = f"{out[-1]} {word}", used + blank + long
            continue
        if out[-1]:
            out.append("")
            used, limit = 0.0, room
        for char in word if long > limit else [word]:
            wide_ = size(char)
            if out[-1] and used + wide_ > limit:
                out.append("")
                used, limit = 0.0, room
            out[-1], used = out[-1] + char, used + wide_
    return out


def at_most(lines: list[str], most: int) -> list[str]:
    """The first lines; where there are more, the last one kept says so."""
    return lines if len(lines) <= most else [*lines[:most - 1], f"{lines[most - 1][:-2]} \N{HORIZONTAL ELLIPSIS}"]
