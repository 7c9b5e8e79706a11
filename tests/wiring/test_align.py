"""Two sequences side by side: the least cost, against every other way on small ones."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from skipway.wiring._align import align

GAP = 10


def cost(x: int, y: int) -> int:
    return min(19, 3 * abs(x - y))


def total(first: list[int], second: list[int], pairs: list[tuple[int | None, int | None]]) -> int:
    return sum(GAP if i is None or j is None else cost(first[i], second[j]) for i, j in pairs)


def cheapest(first: list[int], second: list[int]) -> int:
    """Over every choice of equally many items of both, in order."""
    best = GAP * (len(first) + len(second))
    for n in range(1, min(len(first), len(second)) + 1):
        for xs in itertools.combinations(first, n):
            for ys in itertools.combinations(second, n):
                best = min(best, GAP * (len(first) + len(second) - 2 * n) + sum(map(cost, xs, ys)))
    return best


small = st.lists(st.integers(0, 4), max_size=5)


@settings(deadline=None, max_examples=300)
@given(small, small)
def test_it_is_the_cheapest_and_keeps_the_order(first: list[int], second: list[int]) -> None:
    pairs = align(first, second, lambda x: x, cost, GAP)
    assert [i for i, _ in pairs if i is not None] == list(range(len(first)))
    assert [j for _, j in pairs if j is not None] == list(range(len(second)))
    assert total(first, second, pairs) == cheapest(first, second)


def test_equal_ends_are_paired_without_a_search() -> None:
    asked = []

    def told(x: int, y: int) -> int:
        asked.append((x, y))
        return cost(x, y)

    many = list(range(3000))
    assert align(many, many, lambda x: x, told, GAP) == [(i, i) for i in many] and asked == []
    pairs = align(many, [*many[:1500], -1, *many[1500:]], lambda x: x, told, GAP)
    assert len(asked) == 0 and pairs[1500] == (None, 1500) and pairs[1501] == (1500, 1501)
