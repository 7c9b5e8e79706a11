"""The order in which streams, blocks and ends are used: a place comes after every place that is linked into it."""

from dataclasses import dataclass

from skipway.report._drawing.facts import Facts

DEEPEST = 200           # streams that wait for each other in a row


@dataclass(frozen=True)
class Event:
    """One step from top to bottom. kind: "joint" (long skips end or begin before site `at`), "stem", "block" (its number is `at`) or "end"."""

    kind: str
    stream: int
    at: int = 0


def events(facts: Facts) -> list[Event]:
    """All events. Links that run in circles, or through very many streams against their order, are not waited for."""
    return _Order(facts).all()


class _Order:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.out: list[Event] = []
        self.done = [0] * len(facts.streams)            # blocks that have been passed
        self.begun, self.ended, self.busy = set[int](), set[int](), set[int]()
        self.into: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.entries, self.leaves = set[tuple[int, int]](), set[tuple[int, int]]()
        for link in facts.links:
            self.into.setdefault(link.target, []).append(link.source)
            if link.kind in ("add", "concat"):
                self.entries.add(link.target)
            if link.kind != "follows" or link.source[1] < self.length(link.source[0]):
                self.leaves.add(link.source)

    def all(self) -> list[Event]:
        for stream in range(len(self.facts.streams)):
            self.advance(stream, self.length(stream) + 1)
        return self.out

    def length(self, stream: int) -> int:
        return len(self.facts.streams[stream]["sites"])

    def advance(self, stream: int, sites: int) -> None:
        """Pass the blocks of a stream until `sites` of its sites lie behind; one more than all of them ends it."""
        if stream in self.busy or len(self.busy) > DEEPEST:
            return
        self.busy.add(stream)
        blocks = self.facts.blocks[stream]
        if stream not in self.begun:
            self._wait(stream, 0, 0)
            self.begun.add(stream)
            self.out.append(Event("stem", stream))
        while self.done[stream] < len(blocks) and blocks[self.done[stream]].first < sites:
            block = blocks[self.done[stream]]
            self._wait(stream, block.first, block.last - 1)
            if block.first:
                self._joint(stream, block.first)
            self.out.append(Event("block", stream, self.done[stream]))
            self.done[stream] += 1
        if sites > self.length(stream) and stream not in self.ended:
            self._wait(stream, self.length(stream), self.length(stream))
            self.ended.add(stream)
            if self.length(stream) and (stream, self.length(stream)) in self.entries:
                self._joint(stream, self.length(stream))
            self.out.append(Event("end", stream))
        self.busy.discard(stream)

    def _wait(self, stream: int, first: int, last: int) -> None:
        """Advance the streams that are linked into the sites `first` to `last`; whole streams where their end is read."""
        for at in range(first, last + 1):
            for source, behind in self.into.get((stream, at), ()):
                if source != stream:
                    self.advance(source, behind + (behind == self.length(source)))

    def _joint(self, stream: int, at: int) -> None:
        """A joint before site `at` where something ends or begins there; at a stem it belongs to the stem."""
        if (stream, at) in self.entries or (stream, at) in self.leaves:
            self.out.append(Event("joint", stream, at))
