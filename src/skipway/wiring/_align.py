"""Two sequences side by side at the least cost: which items stand for each other, and which stand alone."""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")


def align(first: Sequence[T], second: Sequence[T], key: Callable[[T], Hashable], cost: Callable[[T, T], int], gap: int) -> list[
        tuple[int | None, int | None]]:
    """Pairs (i, j), (i, None) and (None, j), in order of both, of least total cost. An item that stands alone costs `gap`.

    Items of equal `key` cost nothing together: equal ends are paired without a search, the rest by dynamic programming, len(first) *
    len(second) steps. Among equal costs a pair goes before a gap, and a gap in `first` before one in `second`.
    """
    head = 0
    while head < min(len(first), len(second)) and key(first[head]) == key(second[head]):
        head += 1
    tail = 0
    while tail < min(len(first), len(second)) - head and key(first[-1 - tail]) == key(second[-1 - tail]):
        tail += 1
    a, b = first[head:len(first) - tail], second[head:len(second) - tail]
    middle = [(i if i is None else i + head, j if j is None else j + head) for i, j in _search(a, b, cost, gap)]
    ends = range(tail, 0, -1)
    return [*((i, i) for i in range(head)), *middle, *((len(first) - t, len(second) - t) for t in ends)]


def _search(first: Sequence[T], second: Sequence[T], cost: Callable[[T, T], int], gap: int) -> list[tuple[int | None, int | None]]:
    """The rows of the table from the ends backwards, then the cheapest way through it from the start."""
    n, m = len(first), len(second)
    table = [[0] * (m + 1) for _ in range(n + 1)]
    table[n] = [gap * (m - j) for j in range(m + 1)]
    paid = [[cost(x, y) for y in second] for x in first]
    for i in range(n - 1, -1, -1):
        row, below, here = table[i], table[i + 1], paid[i]
        row[m] = gap * (n - i)
        for j in range(m - 1, -1, -1):
            both, alone = here[j] + below[j + 1], gap + (below[j] if below[j] <= row[j + 1] else row[j + 1])
            row[j] = both if both <= alone else alone
    out: list[tuple[int | None, int | None]] = []
    i = j = 0
    while i < n or j < m:
        if i < n and j < m and table[i][j] == paid[i][j] + table[i + 1][j + 1]:
            out.append((i, j))
            i, j = i + 1, j + 1
        elif i < n and table[i][j] == gap + table[i + 1][j]:
            out.append((i, None))
            i += 1
        else:
            out.append((None, j))
            j += 1
    return out
