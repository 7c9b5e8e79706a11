"""Colours and dashes of the arms, for the page and for files; the first is the ink, which the first arm, mostly the baseline, has."""

# light, dark; each stands off its paper by 3 to 1 or more
COLORS = (("#1c2026", "#e4e7eb"), ("#1f6fb5", "#63aef0"), ("#b06a00", "#e8ae54"), ("#2f7d46", "#7cc08d"), ("#a83a72", "#e08ab5"),
          ("#6a55a8", "#b09be8"), ("#0f7f86", "#4fc3c9"), ("#b3261e", "#ff8f85"), ("#6b6a1e", "#c9c65a"), ("#7a4a2b", "#cf9c78"),
          ("#51657a", "#9fb2c4"), ("#8a33b8", "#d19bf2"))
DASHES = ((), (7.0, 2.5), (2.0, 2.0), (8.0, 2.0, 2.0, 2.0))
STRETCH = 4                     # arms in a row that share a dash: neighbours differ in colour, arms of a like colour in dash


def color(number: int) -> tuple[str, str]:
    """(light, dark) of an arm."""
    return COLORS[number % len(COLORS)]


def dash(number: int) -> tuple[float, ...]:
    """Lengths of ink and gap; empty: a whole line."""
    return DASHES[number // STRETCH % len(DASHES)]


def style(many: int) -> str:
    """The rules of the classes v-0, v-1, ... of `many` arms."""
    out = []
    for number in range(many):
        light, dark = color(number)
        out.append(f".v-{number}{{--line-color:light-dark({light},{dark})}}")
        if dash(number):
            out.append(f".v-{number} .line{{stroke-dasharray:{' '.join(f'{d:g}' for d in dash(number))}}}")
    return "".join(out)
