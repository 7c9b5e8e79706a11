"""The drawing of a wiring as bands from top to bottom: pure data, computed from the plain dictionaries alone."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from skipway.report._drawing.facts import Facts, Link, read
from skipway.report._drawing.order import Event, events
from skipway.report._drawing.parts import Band, Caption, End, Entry, Joint, Layout, Mark, Rail, Run, Stem, Track, View
from skipway.report._drawing.places import Places, badges, find
from skipway.report._drawing.rows import carried, view
from skipway.report._drawing.runs import runs
from skipway.report._drawing.standing import RULE
from skipway.report._drawing.tracks import Line, Steps, Tracks, lay, steps
from skipway.report._groups import groups as finding_groups
from skipway.report._groups import plural
from skipway.report._paths import pattern, shown

EMPTY = "no residual stream: nothing is added back to the value it was computed from"


def layout(wiring: dict[str, Any], findings: Sequence[dict[str, Any]] = (), open: str | Collection[str] = "none", only: str | None = None) -> Layout:
    """Where everything is drawn.

    open: "none" (every repeat folded), "all", or the ids of the folds that are drawn block by block. only: the name of the one main
    stream that is drawn. Raises UsageError where there is no such stream.
    """
    facts = read(wiring, findings, only)
    return _Maker(facts, find(facts, findings)).layout(open)


def opened(band: Band) -> list[Band]:
    """The bands that take the place of a folded one: one for each block."""
    run = band.body
    assert isinstance(run, Run)
    out = []
    for k in range(run.count):
        last = k == run.count - 1
        rails = tuple(replace(r, ends=r.ends and last) for r in band.rails)
        for j, one in enumerate(run.repeats[k]):
            closing = last and j == len(run.views) - 1
            here = tuple(replace(r, ends=r.ends and closing) for r in rails)
            path = run.paths[k][j]
            body = Run(1, ((one,),), (shown(path),), ((path,),), fold=run.fold)
            out.append(replace(band, body=body, rails=here, leaves=band.leaves if closing else ()))
    return out


class _Maker:
    def __init__(self, facts: Facts, places: Places) -> None:
        self.facts, self.places = facts, places
        self.groups, self.runs = self._grouped(events(facts))
        self.at: Steps = steps(facts, self.groups)
        self.tracks: Tracks = lay(facts, self.at)

    def _grouped(self, found: list[Event]) -> tuple[list[list[Event]], dict[int, Run]]:
        """Events by step, with the blocks of a run together."""
        steps_: list[list[Event]] = []
        made: dict[int, Run] = {}
        known: dict[View, int] = {}
        first = 0
        while first < len(found):
            last = first + 1
            if found[first].kind != "block":
                steps_.append([found[first]])
                first = last
                continue
            stream = found[first].stream
            while last < len(found) and (found[last].kind, found[last].stream) == ("block", stream):
                last += 1
            numbers = [e.at for e in found[first:last]]
            views = [view(self.facts, self.places, stream, n) for n in numbers]
            paths = [self.facts.blocks[stream][n].path for n in numbers]
            for start, size, times in runs([known.setdefault(v, len(known)) for v in views], paths):
                span = slice(start, start + size * times)
                made[len(steps_)] = self._run(views[span], paths[span], size, len(made))
                steps_.append(found[first + start:first + start + size * times])
            first = last
        return steps_, made

    def _run(self, views: list[View], paths: list[str], size: int, number: int) -> Run:
        times = len(paths) // size
        repeats = tuple(tuple(views[k * size:(k + 1) * size]) for k in range(times))
        named = tuple(tuple(paths[k * size:(k + 1) * size]) for k in range(times))
        labels = tuple(pattern([repeat[j] for repeat in named]) for j in range(size))
        same = times > 1 and len(set(paths)) == size
        return Run(times, repeats, labels, named, same, f"f{number}" if times > 1 else "")

    def layout(self, open: str | Collection[str]) -> Layout:
        bands: list[Band] = []
        for number, group in enumerate(self.groups):
            band = self._band(number, group[0])
            body = band.body
            if isinstance(body, Run) and body.count > 1 and (open == "all" or (not isinstance(open, str) and body.fold in open)):
                bands += opened(band)
            else:
                bands.append(band)
        bands += [Band(Caption(text)) for text in self._captions()]
        found = self.places.findings
        legend = tuple(b for group in finding_groups(found) for b in badges(found, group))
        return Layout(tuple(bands), tuple(Track(wide) for wide in self.tracks.widths), legend, self.places.placed)

    def _captions(self) -> list[str]:
        out = [] if self.facts.streams else [EMPTY]
        loose = self.facts.loose
        if loose:
            count = sum(len(s["sites"]) for s in loose)
            kinds = sorted({b["kind"] for s in loose for site in s["sites"] for b in site["branches"]})
            out.append(f"beside the streams above: {plural(len(loose), 'side stream')} with {plural(count, 'site')} ({', '.join(kinds)})")
        return out

    def _band(self, number: int, event: Event) -> Band:
        stream = event.stream
        own = self.tracks.streams[stream]
        record = self.facts.streams[stream]
        rails = tuple(sorted((r for line in (*self.tracks.streams, *self.tracks.rails) if (r := self._rail(line, number, own)) is not None),
                             key=lambda r: r.track))
        leaves = tuple((t, line.kind) for line in self.tracks.rails if line.first == number and line.last > number
                       and (t := self.tracks.track(line)) >= 0)
        feeds: tuple[tuple[str, int], ...] = ()
        if event.kind == "block":
            body: Stem | Run | Joint | End = self.runs[number]
            feeds = self._feeds(number)
        elif event.kind == "stem":
            body = self._stem(stream)
        elif event.kind == "joint":
            body = Joint(tuple(self._entry(x) for x in self.facts.into.get((stream, event.at), ()) if x.kind in ("add", "concat")))
        else:
            body = self._end(stream)
        return Band(body, self.tracks.track(own), record["lanes"], rails, leaves, feeds)

    def _rail(self, line: Line, number: int, own: Line) -> Rail | None:
        """What of a line is seen in a band that it does not belong to."""
        track = self.tracks.track(line)
        if track in (-1, self.tracks.track(own)) or not line.first < number <= line.last:
            return None
        kind = line.kind if line.kind != "stream" or number <= line.turns else "memory"
        lanes = self.facts.streams[line.stream]["lanes"] if kind == "stream" else 1
        heir = any(old == line.stream for old in self.tracks.direct.values()) and line.kind == "stream"
        return Rail(track, kind, lanes, number == line.last and not heir)

    def _feeds(self, number: int) -> tuple[tuple[str, int], ...]:
        out: dict[str, int] = {}
        stream = self.groups[number][0].stream
        blocks = [self.facts.blocks[stream][event.at] for event in self.groups[number]]
        sites = [i for block in blocks for i in range(block.first, block.last)]
        for link in (x for i in sites for x in self.facts.into.get((stream, i), ())):
            if link.kind in ("reads", "carries"):
                out[self.facts.streams[link.source[0]]["name"] if link.kind == "reads" else carried(link)] = self._track(link)
        return tuple(out.items())

    def _track(self, link: Link) -> int:
        line = self.tracks.of(link)
        return self.tracks.track(line) if line is not None else -1

    def _entry(self, link: Link) -> Entry:
        source, behind = link.source
        stream = self.facts.streams[source]
        place = "its stem" if behind == 0 else "its end" if behind == len(stream["sites"]) else f"site {behind - 1}"
        return Entry(link.kind, self._track(link), f"{link.kind} of stream {stream['name']} after {place}" if behind else
                     f"{link.kind} of stream {stream['name']} as its stem made it")

    def _stem(self, stream: int) -> Stem:
        record = self.facts.streams[stream]
        found = self.places.badges("stem", stream)
        standing = any(self.places.findings[n]["rule"] == RULE for b in found for n in b.numbers)
        into = [x for x in self.facts.links if x.target == (stream, 0) and x.kind in ("add", "concat", "follows")]
        old = self.tracks.direct.get(stream)
        entries = tuple(self._entry(x) for x in into if x.kind != "follows" or x.source[0] != old)
        return Stem(shown(record["name"]), record["stem"], record["lanes"], len(record["sites"]), old is not None, entries, standing, found)

    def _end(self, stream: int) -> End:
        record = self.facts.streams[stream]
        found = self.places.badges("end", stream)
        goes_on = stream in self.tracks.direct.values()
        norm = None
        if record["final_norm"] is not None:
            norm = Mark("norm", "norm" if goes_on else "final norm", shown(record["final_norm"]), found)
        return End(norm, not goes_on and not self.tracks.streams[stream].links, found)
