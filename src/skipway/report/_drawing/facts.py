"""The wiring dictionary as the drawing needs it: main streams cut into blocks, and the links between them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from skipway._errors import UsageError
from skipway.report._drawing.standing import Mended
from skipway.report._paths import common
from skipway.report.text import blocks as text_blocks

LINKS = ("follows", "reads", "add", "concat", "inside")


@dataclass(frozen=True)
class Link:
    """A way from a place of one stream to a place of another; places are (number of the stream, sites before).

    kind: as of the record's links, or "carries": the shortcut of site `target` begins at `source`, in an earlier block.
    """

    kind: str
    source: tuple[int, int]
    target: tuple[int, int]


@dataclass(frozen=True)
class Block:
    """Consecutive sites of one repeated block: `sites[first:last]` of its stream."""

    path: str
    first: int
    last: int


@dataclass(frozen=True)
class Facts:
    """Main streams, how their sites are grouped, and what runs between them. Side streams are counted at the site they live in."""

    streams: tuple[dict[str, Any], ...]
    blocks: tuple[tuple[Block, ...], ...]               # of each stream
    links: tuple[Link, ...]                             # between main streams
    inner: dict[tuple[int, int], int] = field(default_factory=dict)     # (stream, site) -> sites of side streams in its branches
    loose: tuple[dict[str, Any], ...] = ()              # side streams that live in no branch of a main stream
    # (stream, sites before) -> a sublayer that stands there with no skip around it, and the norm before it.
    stands: dict[tuple[int, int], tuple[str, str | None]] = field(default_factory=dict)
    # (stream, site) -> names of streams that are not drawn and that its branches read.
    outside: dict[tuple[int, int], tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def into(self) -> dict[tuple[int, int], list[Link]]:
        """Links by the place that they lead to."""
        out: dict[tuple[int, int], list[Link]] = {}
        for link in self.links:
            out.setdefault(link.target, []).append(link)
        return out


def read(wiring: dict[str, Any], findings: Sequence[dict[str, Any]] = (), only: str | None = None) -> Facts:
    """The facts of a wiring; of one main stream where `only` names it. Raises UsageError where that is none, or where a link is no link."""
    every = wiring["streams"]
    main = [s for s in every if s["main"]]
    if only is not None:
        main = [s for s in main if s["name"] == only]
        if not main:
            known = ", ".join(s["name"] for s in every if s["main"]) or "none"
            raise UsageError(f"stream {only!r} is no main stream of this wiring; it has {known}")
    number = {id(s): n for n, s in enumerate(main)}
    named: dict[str, dict[str, Any]] = {}
    for stream in every:
        named.setdefault(stream["name"], stream)
    links, homes, outside = [], dict[int, tuple[dict[str, Any], int]](), list[tuple[int, int, str]]()
    for link in _checked(wiring.get("links", [])):
        source, target = named.get(link["source"]), named.get(link["target"])
        if source is None or target is None:
            raise UsageError(f"wiring.links: got a link from {link['source']!r} to {link['target']!r}, want names of streams; write the file anew")
        if link["kind"] == "inside":
            homes[id(source)] = (target, link["target_at"])
        elif id(source) in number and id(target) in number:
            ends = [(number[id(s)], min(max(at, 0), len(s["sites"]))) for s, at in ((source, link["source_at"]), (target, link["target_at"]))]
            links.append(Link(link["kind"], ends[0], ends[1]))
        elif link["kind"] == "reads" and id(target) in number:
            outside.append((number[id(target)], link["target_at"], link["source"]))
    ended = [x for x in links if x.kind == "follows" and x.source[1] == len(main[x.source[0]]["sites"])]
    mended = Mended(main, [(x.target[0], x.source[0]) for x in ended], findings)
    links = [Link(x.kind, mended.at(*x.source), mended.at(*x.target)) for x in links]
    links = [x for x in links if not (x.kind == "follows" and x.source == x.target)]
    inner: dict[tuple[int, int], int] = {}
    loose = []
    for stream in every if only is None else [s for s in every if id(s) in homes]:
        home = None if stream["main"] else _home(stream, homes, number)
        if home is not None:
            at = mended.at(*home)
            inner[at] = inner.get(at, 0) + len(stream["sites"])
        elif not stream["main"]:
            loose.append(stream)
    read_outside: dict[tuple[int, int], tuple[str, ...]] = {}
    for stream_number, site, name in outside:
        at = mended.at(stream_number, site)
        read_outside[at] = (*read_outside.get(at, ()), name)
    links = list(dict.fromkeys([*links, *_carried(mended.streams)]))
    return Facts(tuple(mended.streams), _cut(mended.streams, links), tuple(links), inner, tuple(loose), mended.stands, read_outside)


def _cut(streams: list[dict[str, Any]], links: list[Link]) -> tuple[tuple[Block, ...], ...]:
    """Blocks of each stream, cut where a link begins or ends."""
    cuts = {x.source for x in links} | {x.target for x in links if x.kind in ("add", "concat")}
    return tuple(_blocks(s["sites"], {at for of, at in cuts if of == n}) for n, s in enumerate(streams))


def _checked(links: Any) -> list[dict[str, Any]]:
    kinds = {"kind": str, "source": str, "target": str, "source_at": int, "target_at": int}
    if not isinstance(links, list):
        raise UsageError(f"wiring.links: got {type(links).__name__}, want a list; write the file anew")
    for number, link in enumerate(links):
        if not isinstance(link, dict) or any(type(link.get(name)) is not kind for name, kind in kinds.items()) or link["kind"] not in LINKS:
            raise UsageError(f"wiring.links[{number}]: want kind ({', '.join(LINKS)}), source, source_at, target and target_at; write the file anew")
    return links


def _carried(main: list[dict[str, Any]]) -> list[Link]:
    """Shortcuts that begin in an earlier block than that of their site."""
    out = []
    for number, stream in enumerate(main):
        first = {site["layer"]: i for i, site in reversed(list(enumerate(stream["sites"])))}
        for i, site in enumerate(stream["sites"]):
            begins = site.get("shortcut_from")
            if isinstance(begins, int) and 0 <= begins < first[site["layer"]]:
                out.append(Link("carries", (number, begins), (number, i)))
    return out


def _home(stream: dict[str, Any], homes: dict[int, tuple[dict[str, Any], int]], number: dict[int, int]) -> tuple[int, int] | None:
    """The site of a main stream in whose branch a side stream lives, through the side streams around it."""
    seen = set()
    while id(stream) in homes and id(stream) not in seen:
        seen.add(id(stream))
        stream, site = homes[id(stream)]
        if id(stream) in number:
            return number[id(stream)], site
    return None


def _blocks(sites: Sequence[dict[str, Any]], cuts: set[int]) -> tuple[Block, ...]:
    """Sites by repeated block, cut where a link begins or ends.

    Parts of one block, such as block.0.layer.0 and block.0.layer.1, are one block where the text report says so too.
    """
    nested = any(sum(part.isdigit() for part in s["module"].split(".")) > 1 for s in sites)
    found = text_blocks(list(sites)) if nested else []
    outer = {path for paths, block in found if len({s["layer"] for s in block}) > 1 for path in paths}
    groups: list[tuple[Any, list[int]]] = []
    for number, site in enumerate(sites):
        around = next((p for p in _around(site["module"]) if p in outer), None)
        key = ("part", around) if around is not None else ("layer", site["layer"])
        if groups and groups[-1][0] == key and number not in cuts:
            groups[-1][1].append(number)
        else:
            groups.append((key, [number]))
    out = []
    for key, numbers in groups:
        path = key[1] if key[0] == "part" else common(sites[n]["module"] for n in numbers)
        out.append(Block(path, numbers[0], numbers[-1] + 1))
    return tuple(out)


def _around(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
