"""Module paths that differ in one index, folded: `layers.0`, `layers.1`, `layers.2` as `layers.{0-2}`."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

# An index inside a path: digits between dots, or in front of a name. "1.5" in a message is none.
INDEX = re.compile(r"(?<=[A-Za-z_\]]\.)\d+\b|\b\d+(?=\.[A-Za-z_])")


def shown(path: str) -> str:
    """The path for a reader; the model itself has none."""
    return path or "(model)"


def common(paths: Iterable[str]) -> str:
    """The longest path that all of them start with."""
    split = [p.split(".") if p else [] for p in paths]
    out = []
    for parts in zip(*split, strict=False):
        if len(set(parts)) > 1:
            break
        out.append(parts[0])
    return ".".join(out)


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key that puts layers.10 after layers.9."""
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", text) if part)


def skeleton(path: str) -> str:
    """The path without its indices: equal for places that are the same in every repeated block."""
    return INDEX.sub("#", path)


def fold(paths: Sequence[str]) -> list[list[int]]:
    """Positions of `paths` in groups that differ in one index (or not at all), in order of the first of each group."""
    groups: list[list[int]] = []
    for position, path in enumerate(paths):
        for group in groups:
            if one_index([paths[i] for i in group] + [path]) is not None:
                group.append(position)
                break
        else:
            groups.append([position])
    return groups


def pattern(paths: Sequence[str]) -> str:
    """One text for paths that differ in one index: `layers.{0-2,5}.mlp`. Paths that differ otherwise are listed."""
    at = one_index(paths)
    if at is None:
        return ", ".join(shown(p) for p in dict.fromkeys(paths))
    if at < 0:
        return shown(paths[0])
    parts = paths[0].split(".")
    parts[at] = "{" + ranges(sorted({int(p.split(".")[at]) for p in paths})) + "}"
    return ".".join(parts)


def one_index(paths: Sequence[str]) -> int | None:
    """The position of the one part in which the paths differ and which is a number in all; -1 where they are equal, None where more differs."""
    split = [p.split(".") for p in paths]
    if len({len(s) for s in split}) > 1:
        return None
    differ = [i for i, parts in enumerate(zip(*split, strict=True)) if len(set(parts)) > 1]
    if not differ:
        return -1
    if len(differ) > 1 or not all(s[differ[0]].isdigit() for s in split):
        return None
    return differ[0]


def ranges(numbers: Sequence[int]) -> str:
    """0 1 2 5 as "0-2,5"; 0 2 4 6 as "0,2,...,6"."""
    if len(numbers) > 3 and numbers[1] - numbers[0] > 1 and len({b - a for a, b in pairwise(numbers)}) == 1:
        return f"{numbers[0]},{numbers[1]},...,{numbers[-1]}"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else f"{r[0]}" for r in runs)
