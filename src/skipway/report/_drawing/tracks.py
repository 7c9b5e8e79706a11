"""Where vertical lines run: a wide track for each stream that is under way, narrow ones beside it for long skips and memories."""

from dataclasses import dataclass, field

from skipway.report._drawing.facts import Facts, Link
from skipway.report._drawing.order import Event

SIDE_BY_SIDE = 4        # streams that get a track of their own though one is free
MOST = 12               # rails beside one stream; the links of further ones are told in words


@dataclass
class Line:
    """A vertical line from step `first` to step `last`. `kind` as of a rail; a stream becomes a memory after step `turns`."""

    stream: int
    kind: str
    first: int
    last: int
    turns: int = -1
    slot: int = -1                                      # of a stream its column, of a rail its place beside the column, from the inside
    links: list[Link] = field(default_factory=list)


@dataclass
class Tracks:
    """All lines, and the track of each. -1 as a track: there was no room."""

    streams: list[Line]
    rails: list[Line]
    direct: dict[int, int]                              # stream -> the ended stream whose line it takes over
    widths: list[bool] = field(default_factory=list)    # from left to right: whether the track is wide
    _at: dict[int, int] = field(default_factory=dict)

    def track(self, line: Line) -> int:
        return self._at.get(id(line), -1)

    def of(self, link: Link) -> Line | None:
        """The line that a link leaves on."""
        return next((x for x in (*self.rails, *self.streams) if any(one is link for one in x.links)), None)


@dataclass(frozen=True)
class Steps:
    """At which step everything happens."""

    stem: dict[int, int]
    end: dict[int, int]
    joint: dict[tuple[int, int], int]
    block: dict[tuple[int, int], int]                   # (stream, site) -> step

    def source(self, facts: Facts, spot: tuple[int, int]) -> int:
        stream, at = spot
        if at == len(facts.streams[stream]["sites"]):
            return self.end[stream]
        return self.joint.get(spot, self.stem[stream])

    def target(self, link: Link) -> int:
        stream, at = link.target
        if link.kind in ("reads", "carries"):
            return self.block.get((stream, at), self.end[stream])
        return self.stem[stream] if link.kind == "follows" or not at else self.joint[stream, at]


def steps(facts: Facts, groups: list[list[Event]]) -> Steps:
    """`groups`: the events of each step."""
    out = Steps({}, {}, {}, {})
    for number, group in enumerate(groups):
        for event in group:
            if event.kind == "stem":
                out.stem[event.stream] = number
            elif event.kind == "end":
                out.end[event.stream] = number
            elif event.kind == "joint":
                out.joint[event.stream, event.at] = number
            else:
                block = facts.blocks[event.stream][event.at]
                out.block.update({(event.stream, i): number for i in range(block.first, block.last)})
    return out


def lay(facts: Facts, at: Steps) -> Tracks:
    """Tracks of all lines."""
    direct = _direct(facts, at)
    heirs = {old: new for new, old in direct.items()}
    streams = [Line(s, "stream", at.stem[s], at.end[s], at.end[s]) for s in range(len(facts.streams))]
    rails: dict[tuple[int, int], Line] = {}
    for link in facts.links:
        source, behind = link.source
        first, last = at.source(facts, link.source), at.target(link)
        if last <= first or (link.kind == "follows" and direct.get(link.target[0]) == source and behind == len(facts.streams[source]["sites"])):
            continue
        if first == at.end[source] and source not in heirs:
            line = streams[source]
        else:
            line = rails.setdefault(link.source, Line(source, "skip", first, last))
            line.kind = "memory" if link.kind == "reads" else line.kind
        line.last = max(line.last, last)
        line.links.append(link)
    for new, old in direct.items():
        streams[old].last = at.stem[new] - 1
    found = Tracks(streams, list(rails.values()), direct)
    _columns(facts, found, at)
    _beside(found)
    return found


def _direct(facts: Facts, at: Steps) -> dict[int, int]:
    """Streams that take over the line of one that ended before: the latest that they are made of, and each line once."""
    out: dict[int, int] = {}
    for stream in sorted(at.stem, key=lambda s: at.stem[s]):
        made = [x.source[0] for x in facts.links if x.kind == "follows" and x.target[0] == stream
                and x.source[1] == len(facts.streams[x.source[0]]["sites"]) and at.end[x.source[0]] < at.stem[stream]]
        free = [old for old in made if old not in out.values()]
        if free:
            out[stream] = max(free, key=lambda s: at.end[s])
    return out


def _columns(facts: Facts, tracks: Tracks, at: Steps) -> None:
    """A column for each stream; two that are under way at the same time never share one."""
    used: list[list[Line]] = []
    for line in sorted(tracks.streams, key=lambda x: x.first):
        old = tracks.direct.get(line.stream)
        if old is not None:
            line.slot = tracks.streams[old].slot
        else:
            free = [c for c, lines in enumerate(used) if all(x.last < line.first for x in lines)]
            line.slot = free[0] if free and len(used) >= SIDE_BY_SIDE else len(used)
        if line.slot == len(used):
            used.append([])
        used[line.slot].append(line)


def _beside(tracks: Tracks) -> None:
    """Rails on the left of their stream's column: the shortest inside, none over another one."""
    taken: dict[int, list[list[Line]]] = {}
    for line in sorted(tracks.rails, key=lambda x: (x.last - x.first, x.first)):
        slots = taken.setdefault(tracks.streams[line.stream].slot, [])
        line.slot = next((n for n, lines in enumerate(slots) if all(x.last < line.first or line.last < x.first for x in lines)), len(slots))
        if line.slot == len(slots) and line.slot < MOST:
            slots.append([])
        if line.slot < len(slots):
            slots[line.slot].append(line)
    number = 0
    for column in range(max((x.slot for x in tracks.streams), default=-1) + 1):
        slots = taken.get(column, [])
        for slot in reversed(range(len(slots))):
            tracks._at.update({id(line): number for line in slots[slot]})
            tracks.widths.append(False)
            number += 1
        tracks._at.update({id(line): number for line in tracks.streams if line.slot == column})
        tracks.widths.append(True)
        number += 1
