"""Repeats, folded: consecutive blocks, or groups of up to twelve blocks, that are wired alike and whose paths differ in one index."""

from collections.abc import Sequence

from skipway.report._paths import one_index

LONGEST = 12            # blocks in a group that repeats


def runs(kinds: Sequence[int], paths: Sequence[str]) -> list[tuple[int, int, int]]:
    """(first, blocks in one repeat, repeats) of each run, in order; together they cover everything. Equal `kinds` look alike.

    >>> runs([1, 1, 1, 2, 1, 1, 1, 2], ["a.0", "a.1", "a.2", "a.3", "a.4", "a.5", "a.6", "a.7"])
    [(0, 4, 2)]
    """
    out: list[tuple[int, int, int]] = []
    first = 0
    while first < len(kinds):
        best = (1, 1)
        for size in range(1, min(LONGEST, (len(kinds) - first) // 2) + 1):
            if size > 1 and len(set(kinds[first:first + size])) == 1:       # blocks of one kind in two nested lists: each list is a run
                continue
            times = _times(kinds, paths, first, size)
            if times > 1 and size * times > best[0] * best[1]:
                best = (size, times)
        out.append((first, *best))
        first += best[0] * best[1]
    return out


def _times(kinds: Sequence[int], paths: Sequence[str], first: int, size: int) -> int:
    """How often the group of `size` blocks at `first` is there, the first time included."""
    times = 1
    while first + (times + 1) * size <= len(kinds):
        start = first + times * size
        alike = all(kinds[start + k] == kinds[first + k] and _folds(paths[first + k], paths[start - size + k], paths[start + k]) for k in range(size))
        if not alike:
            break
        times += 1
    return times


def _folds(first: str, last: str, path: str) -> bool:
    """Whether a path differs from those of the repeats before in the same one index."""
    return one_index([first, path]) is not None and one_index([first, last, path]) is not None
