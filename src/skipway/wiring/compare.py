"""What differs between two wirings, stream by stream and site by site. Names of modules are no differences unless asked for.

Streams and sites are paired by order and by what they are, so a port with other module names is compared with its original, and one
site more or less does not shift what follows it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from skipway.wiring._align import align
from skipway.wiring.structure import Link, Site, Stream, Wiring

# What is compared of a stream and of a site, in the order in which it is told. "stream" and "site": there is none on the other side;
# "start": whether the stream begins anew at the site.
STREAM_FIELDS = ("stream", "main", "lanes", "final_norm")
SITE_FIELDS = ("site", "start", "branches", "placement", "norm", "shortcut", "gain", "scale", "parallel", "drop", "shortcut_from", "read_from")
NAME_FIELDS = ("name", "stem", "final_norm_module", "module", "norm_modules", "branch_modules")
FIELDS = (*STREAM_FIELDS, *SITE_FIELDS, *NAME_FIELDS, "link")

GAP = 10_000_000                            # a site that stands alone
KINDS_APART, KINDS_OVERLAP, FIELD = 10_000_000, 4_000_000, 1_000_000      # a pair whose branches, or whose other fields, differ
MOST = 2 * GAP - FIELD                      # a pair always costs less than two sites that stand alone
BREAK = 4_000_000                           # a stream that stands for two in a row
MOST_PARTS = 4
OF_A_SITE = ("reads", "inside")             # links that lead into a branch of the site `target_at`; others lead to the state before it
OTHER_NAME, OTHER_LAYER = 2, 1              # decides between pairs that are equal otherwise

Pairs = list[tuple[int | None, int | None]]             # positions of what stands for each other; None where one stands alone
Group = tuple[tuple[int, ...], tuple[int, ...]]         # the same of streams, by number; () where one stands alone


@dataclass(frozen=True)
class Difference:
    """One fact in which two wirings differ."""

    field: str                      # one of FIELDS
    first: Any                      # its value in the first wiring; None where the stream or site is not there
    second: Any                     # its value in the second wiring
    stream: str                     # name of the stream, in the first wiring where it is there
    site: int | None = None         # sites before it in the first wiring, from the start of `stream`; None for a stream, or where it is not there
    other_site: int | None = None   # the same in the second wiring
    module: str | None = None       # path of the module that joins, in the first wiring
    other_module: str | None = None     # and in the second
    kinds: tuple[str, ...] = ()     # kinds of the site's branches, in the first wiring where it is there


def compare(first: Wiring, second: Wiring, *, names: bool = False) -> tuple[Difference, ...]:
    """All differences, in order of streams and sites; () where the wirings are equal.

    names: also compare the paths of modules (stems, norms, branches, joins) and the names of streams.
    """
    out: list[Difference] = []
    @cache
    def pairing(ours: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[Pairs, int]:
        return _sites(Run(first, ours), Run(second, theirs))

    groups = paired(first, second, lambda ours, theirs: pairing(ours, theirs)[1])
    runs = [(Run(first, ours), Run(second, theirs)) for ours, theirs in groups]
    sites = [pairing(*group)[0] if all(group) else [] for group in groups]
    for (a, b), pairs in zip(runs, sites, strict=True):
        if not a.streams or not b.streams:
            out += _alone(a, b)
            continue
        out += _stream(a, b, names)
        for i, j in pairs:
            out += _site(a, b, i, j, names)
    return (*out, *_links(first, second, runs, sites))


class Run:
    """One stream, or several in a row where the stream breaks off and begins again, as a missing skip makes it do."""

    def __init__(self, wiring: Wiring, numbers: tuple[int, ...]) -> None:
        self.streams = streams = tuple(wiring.streams[n] for n in numbers)
        self.name = streams[0].name if streams else ""
        self.sites = tuple(site for stream in streams for site in stream.sites)
        self.starts = {sum(len(s.sites) for s in streams[:n]) for n in range(1, len(streams))}


def _sites(a: Run, b: Run) -> tuple[Pairs, int]:
    """Sites that stand for each other, and what that costs."""
    same_names = bool({s.module for s in a.sites} & {s.module for s in b.sites})
    kinds: dict[tuple[Any, ...], int] = {}          # signature -> its number: most sites share one of a few
    left, right = ([(kinds.setdefault(signature(s), len(kinds)), s.module, s.layer) for s in run.sites] for run in (a, b))
    known: dict[tuple[int, int], int] = {}
    signatures = list(kinds)

    def apart(x: tuple[int, str, int], y: tuple[int, str, int]) -> int:
        cost = known.get((x[0], y[0]))
        if cost is None:
            cost = known[x[0], y[0]] = _apart(signatures[x[0]], signatures[y[0]])
        return cost + OTHER_NAME * (x[1] != y[1]) + OTHER_LAYER * (x[2] != y[2])

    pairs = align(left, right, lambda s: (s[0], s[1] if same_names else s[2]), apart, GAP)
    return pairs, sum(GAP if i is None or j is None else apart(left[i], right[j]) for i, j in pairs)


def _apart(x: tuple[Any, ...], y: tuple[Any, ...]) -> int:
    kinds = 0 if x[0] == y[0] else KINDS_OVERLAP if set(x[0]) & set(y[0]) else KINDS_APART
    return min(MOST, kinds + FIELD * sum(p != q for p, q in zip(x[1:], y[1:], strict=True)))


def signature(site: Site) -> tuple[Any, ...]:
    """What a site is apart from its names: the values of SITE_FIELDS from the third on, in their order."""
    kinds = tuple(sorted(b.kind for b in site.branches))
    drop = "path" if any(b.drop == "path" for b in site.branches) else "none"         # drop-out is no wiring
    scale = _number(site.branch_scale) if site.scale == "constant" and site.branch_scale is not None else site.scale
    return (kinds, site.placement, site.norm, site.shortcut, _number(site.gain), scale, site.parallel, drop, site.shortcut_from, site.read_from)


def _number(value: float | None) -> float | None:
    """Constants that differ in rounding only are equal."""
    return value if value is None else float(f"{value:.6g}")


def describe(site: Site) -> str:
    """A site in a few words: "pre RMSNorm ffn"."""
    return " ".join([site.placement if site.placement != "none" else "no-norm", *([site.norm] if site.norm else []),
                     "+".join(b.kind for b in site.branches) or "other"])


def _alone(a: Run, b: Run) -> list[Difference]:
    out = []
    for here, run in ((True, a), (False, b)):
        for stream in run.streams:
            text = f"{stream.lanes} lanes, {len(stream.sites)} sites" if stream.lanes > 1 else f"{len(stream.sites)} sites"
            out.append(Difference("stream", text if here else None, None if here else text, stream.name))
    return out


def _stream(a: Run, b: Run, names: bool) -> list[Difference]:
    """What begins and ends the two."""
    x, y, p, q = a.streams[0], b.streams[0], a.streams[-1], b.streams[-1]
    values: list[tuple[str, Any, Any]] = [
        ("main", x.main, y.main), ("lanes", x.lanes, y.lanes), ("final_norm", p.final_norm is not None, q.final_norm is not None)]
    if names:
        values += [("name", x.name, y.name), ("stem", x.stem, y.stem)]
        if p.final_norm is not None and q.final_norm is not None:
            values.append(("final_norm_module", p.final_norm, q.final_norm))
    return [Difference(field, one, other, a.name) for field, one, other in values if one != other]


def _site(a: Run, b: Run, i: int | None, j: int | None, names: bool) -> list[Difference]:
    x, y = a.sites[i] if i is not None else None, b.sites[j] if j is not None else None
    there = x or y
    assert there is not None

    def told(field: str, one: Any, other: Any) -> Difference:
        return Difference(field, one, other, a.name, i, j, x.module if x else None, y.module if y else None, tuple(k.kind for k in there.branches))

    if x is None or y is None:
        return [told("site", describe(x) if x else None, describe(y) if y else None)]
    values: list[tuple[str, Any, Any]] = [("start", i in a.starts, j in b.starts), *zip(SITE_FIELDS[2:], signature(x), signature(y), strict=True)]
    if names:
        values += [("module", x.module, y.module), ("norm_modules", x.norm_modules, y.norm_modules),
                   ("branch_modules", tuple(k.modules for k in x.branches), tuple(k.modules for k in y.branches))]
    return [told(field, one, other) for field, one, other in values if one != other]


def _links(first: Wiring, second: Wiring, runs: list[tuple[Run, Run]], sites: list[Pairs]) -> list[Difference]:
    """Links of only one side. Ends of the first are put where their sites stand in the second; a link to a stream that stands alone is told
    by that stream."""
    ours: dict[str, tuple[int, int]] = {}           # stream of the first -> its pair of runs, and its first site in the run
    theirs: dict[str, tuple[int, int]] = {}
    for number, pair in enumerate(runs):
        for run, table in zip(pair, (ours, theirs), strict=True):
            start = 0
            for stream in run.streams if all(p.streams for p in pair) else ():
                table[stream.name] = (number, start)
                start += len(stream.sites)
    moved = [_places(pairing) for pairing in sites]
    met = [{i: j for i, j in pairing if i is not None and j is not None} for pairing in sites]

    def ends(wiring: Wiring, table: dict[str, tuple[int, int]], here: bool) -> Iterator[tuple[tuple[Any, ...], Link]]:
        """Links with their ends as places in the second; here: of the first. What is told by a site that stands alone is left out."""
        for link in wiring.links:
            if link.source not in table or link.target not in table:
                continue
            (source, start), (target, begin) = table[link.source], table[link.target]
            at, to = start + link.source_at, begin + link.target_at
            if link.kind in OF_A_SITE and to not in (met[target] if here else met[target].values()):
                continue
            if link.kind == "follows" and source == target:                 # the parts of one run
                continue
            if here:
                at, to = moved[source].get(at, at), met[target].get(to, moved[target].get(to, to))
            yield (link.kind, (source, at), (target, to)), link

    def only(mine: list[tuple[tuple[Any, ...], Link]], others: list[tuple[tuple[Any, ...], Link]]) -> Iterator[tuple[str, str]]:
        left = Counter(key for key, _ in others)
        for key, link in mine:
            left[key] -= 1
            if left[key] < 0:
                yield runs[key[2][0]][0].name, f"{link.kind} {link.source}@{link.source_at} -> {link.target}@{link.target_at}"

    a, b = list(ends(first, ours, True)), list(ends(second, theirs, False))
    return [*(Difference("link", text, None, stream) for stream, text in only(a, b)),
            *(Difference("link", None, text, stream) for stream, text in only(b, a))]


def _places(pairing: Pairs) -> dict[int, int]:
    """Number of sites before a place in the first -> the same place in the second; an end is the same place as the other's end."""
    out, here = {0: 0}, 0
    for x, y in pairing:
        here = y + 1 if y is not None else here
        if x is not None:
            out[x + 1] = here
    return {**out, max(out): here}


def paired(first: Wiring, second: Wiring, cost: Callable[[tuple[int, ...], tuple[int, ...]], int]) -> list[Group]:
    """Numbers of the streams that stand for each other, main before side; () where a stream stands alone.

    Main streams are paired by the cost of pairing their sites, and one may stand for up to MOST_PARTS in a row; side streams by what they
    have in common.
    """
    groups = _runs(first, second, cost)
    mine, others = ([n for n, s in enumerate(w.streams) if not s.main] for w in (first, second))
    side = align([first.streams[n] for n in mine], [second.streams[n] for n in others], _content, _unlike, GAP)
    groups += [((mine[i],) if i is not None else (), (others[j],) if j is not None else ()) for i, j in side]
    return _across(groups, first, second)


def _across(groups: list[Group], first: Wiring, second: Wiring) -> list[Group]:
    """Also pairs a main stream that stands alone with an equal side stream that does."""
    alone = [b for a, b in groups if not a]
    out = []
    for a, b in groups:
        match = next((c for c in alone if len(a) == len(c) == 1 and _content(first.streams[a[0]])[1:] == _content(second.streams[c[0]])[1:]),
                     None) if not b else None
        if match is not None:
            alone.remove(match)
        out.append((a, match or b))
    taken = [b for a, b in out if a]
    return [(a, b) for a, b in out if a or b not in taken]


def _runs(first: Wiring, second: Wiring, cost: Callable[[tuple[int, ...], tuple[int, ...]], int]) -> list[Group]:
    """The cheapest way to pair main streams in order: one with one, one with several in a row, or alone."""
    ours, theirs = ([n for n, s in enumerate(w.streams) if s.main] for w in (first, second))
    n, m = len(ours), len(theirs)
    steps = [(1, 1), *((1, k) for k in range(2, MOST_PARTS + 1)), *((k, 1) for k in range(2, MOST_PARTS + 1))]
    best: dict[tuple[int, int], tuple[int, tuple[int, int]]] = {(n, m): (0, (0, 0))}
    for i in range(n, -1, -1):
        for j in range(m, -1, -1):
            ways = []
            if i < n:
                ways.append((best[i + 1, j][0] + GAP * len(first.streams[ours[i]].sites) + FIELD, (1, 0)))
            if j < m:
                ways.append((best[i, j + 1][0] + GAP * len(second.streams[theirs[j]].sites) + FIELD, (0, 1)))
            for p, q in steps:
                if i + p <= n and j + q <= m:
                    together = cost(tuple(ours[i:i + p]), tuple(theirs[j:j + q])) + BREAK * (p + q - 2)
                    ways.append((best[i + p, j + q][0] + together, (p, q)))
            if ways:
                best[i, j] = min(ways, key=lambda way: (way[0], -min(way[1])))
    out: list[Group] = []
    i = j = 0
    while (i, j) != (n, m):
        p, q = best[i, j][1]
        out.append((tuple(ours[i:i + p]), tuple(theirs[j:j + q])))
        i, j = i + p, j + q
    return out


def _content(stream: Stream) -> tuple[Any, ...]:
    return (stream.main, stream.lanes, tuple(map(signature, stream.sites)))


def _unlike(a: Stream, b: Stream) -> int:
    """From 0 for streams of the same sites to more than two gaps for streams with none in common."""
    left, right = Counter(map(signature, a.sites)), Counter(map(signature, b.sites))
    return int(GAP * 2.5 * (1 - sum((left & right).values()) / max(1, len(a.sites), len(b.sites))))
