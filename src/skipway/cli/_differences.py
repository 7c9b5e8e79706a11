"""Differences between two wirings for a person, one line for what is the same in repeated blocks.

"x32   layers.{0-31}  ffn: placement post, was pre"
"""

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skipway.report._escape import plain
from skipway.report._groups import count, plural
from skipway.report._paths import fold, pattern, shown, skeleton

if TYPE_CHECKING:
    from skipway.wiring import Wiring
    from skipway.wiring.compare import Difference

INPUTS = "inputs:"           # how notes about guessed inputs start; they say nothing about the wiring
LONGEST = 4000              # characters of a list of paths
WORDS = {"start": "", "final_norm": "final norm", "final_norm_module": "final norm", "norm_modules": "norms", "branch_modules": "branch modules",
         "shortcut_from": "sites behind of the shortcut", "read_from": "sites behind of the branch's input", "main": "main stream"}


def text(first: "Wiring", second: "Wiring", names: tuple[str, str], found: "Sequence[Difference]", width: int = 100) -> str:
    """Both sides, what differs, and a line of totals. `names` are the targets as they were given."""
    head = [("A", names[0], first), ("B", names[1], second)]
    wide = max(len(plain(name)) for _, name, _ in head)
    lines = [f"{side}  {plain(name):<{wide}}  {plain(w.model or 'model')}  {count(w.parameters)} parameters  {size(w)}" for side, name, w in head]
    for side, _, w in head:
        for note in w.notes:
            if not note.startswith(INPUTS):
                lines += wrapped(f"note on {side}: {plain(' '.join(note.split()), LONGEST)}", "", "  ", width)
    for stream, group in by_stream(found).items():
        lines += ["", f"stream {plain(stream)}".rstrip()]
        lines += [line for part in rows(group) for line in wrapped(part, "  ", " " * 10, width)]
    return "\n".join([*lines, "", totals(first, found)]) + "\n"


def size(wiring: "Wiring") -> str:
    """"64 sites on 1 stream"."""
    main = [s for s in wiring.streams if s.main]
    return f"{plural(len(wiring.sites), 'site')} on {plural(len(main), 'stream')}"


def totals(first: "Wiring", found: "Sequence[Difference]") -> str:
    """How many sites and streams differ."""
    if not found:
        return f"no difference; {size(first)} compared"
    sites = len({(d.stream, d.site, d.other_site) for d in found if d.site is not None or d.other_site is not None})
    others = sum(d.site is None and d.other_site is None for d in found)
    parts = [plural(sites, "site")] * bool(sites) + [f"{plural(others, 'other fact')}"] * bool(others)
    return f"{' and '.join(parts)} {'differs' if sites + others == 1 else 'differ'}"


def by_stream(found: "Sequence[Difference]") -> "dict[str, list[Difference]]":
    """Differences by the stream they are on, in order."""
    out: dict[str, list[Difference]] = {}
    for one in found:
        out.setdefault(one.stream, []).append(one)
    return out


def rows(found: "Sequence[Difference]") -> list[str]:
    """One row a fact of the stream, then one for the sites that differ in the same way in repeated blocks."""
    facts = [one for one in found if one.site is None and one.other_site is None and one.field != "link"]
    out = [f"{word(one) if one.field != 'stream' else plain(str(one.first or one.second))}: {change(one)}" for one in facts]
    places: dict[tuple[int | None, int | None], list[Difference]] = {}
    for one in found:
        if one.site is not None or one.other_site is not None:
            places.setdefault((one.site, one.other_site), []).append(one)
    alike: dict[tuple[str, ...], list[tuple[Difference, str]]] = {}
    for group in places.values():
        if group[0].field == "site":
            what, said = str(group[0].first or group[0].second), change(group[0])
        else:
            what, said = "+".join(group[0].kinds) or "other", "; ".join(f"{word(one)} {change(one)}".strip() for one in group)
        alike.setdefault((plain(what), skeleton(said)), []).append((group[0], said))
    for (what, bare), same in alike.items():
        for part in fold([_here(one) for one, _ in same]):
            said = same[part[0]][1] if len({same[i][1] for i in part}) == 1 else bare
            out.append(f"{f'x{len(part)}':<6}{_where([same[i][0] for i in part])}  {what}: {said}")
    links: dict[tuple[str, bool], int] = {}
    for one in found:
        if one.field == "link":
            links[_link(one), one.first is not None] = links.get((_link(one), one.first is not None), 0) + 1
    return out + [f"{f'x{n}':<6}{plain(said)}: only in {'A' if ours else 'B'}" for (said, ours), n in links.items()]


def _link(one: "Difference") -> str:
    """A link without its places: "reads encoder -> decoder"."""
    return re.sub(r"@\d+", "", one.first or one.second)


def _here(one: "Difference") -> str:
    path = one.module if one.module is not None else one.other_module
    return path or ""


def _where(group: "Sequence[Difference]") -> str:
    """The modules of A, and of B where they have other names."""
    ours = plain(pattern([_here(one) for one in group]), LONGEST)
    if any(one.module is None or one.other_module is None or one.module == one.other_module for one in group):
        return ours
    return f"{ours} -> {plain(pattern([one.other_module or '' for one in group]), LONGEST)}"


def word(one: "Difference") -> str:
    """The name of what differs."""
    return WORDS.get(one.field, one.field)


def change(one: "Difference") -> str:
    """"post, was pre", or on which side alone it is."""
    if one.field in ("site", "stream"):
        return f"only in {'A' if one.first is not None else 'B'}"
    if one.field == "start":
        return f"in {'A' if one.first else 'B'} the stream breaks off before it"
    return f"{value(one.field, one.second)}, was {value(one.field, one.first)}"


def value(field: str, given: Any) -> str:
    """One side of a difference in words."""
    if field == "gain" and given is None:
        return "varies"
    if field == "final_norm":
        return "present" if given else "none"
    if given is None or given == () or given == "":
        return "none" if field not in ("stem", "module") else shown("")
    if isinstance(given, bool):
        return "yes" if given else "no"
    if isinstance(given, (tuple, list)):
        return "+".join(value("", one) for one in given)
    return plain(f"{given:.6g}" if isinstance(given, float) else str(given))


def wrapped(line: str, first: str, then: str, width: int) -> list[str]:
    """The line in lines of at most `width` characters."""
    return textwrap.wrap(line, width, initial_indent=first, subsequent_indent=then, break_on_hyphens=False, drop_whitespace=True)
