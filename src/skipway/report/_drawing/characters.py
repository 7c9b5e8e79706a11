"""The drawing in plain characters, over the same layout as the SVG."""

from dataclasses import dataclass

from skipway.report._drawing import character_rows as rows
from skipway.report._drawing.canvas import Line, columns, cut
from skipway.report._drawing.character_rows import badge_width, put_badges, tone
from skipway.report._drawing.measure import wrapped
from skipway.report._drawing.parts import Badge, Band, Caption, End, Entry, Joint, Layout, Run, Stem, View
from skipway.report._escape import plain
from skipway.report._groups import plural

LEAST = 40              # columns; a narrower terminal wraps


def write(layout: Layout, title: str = "", *, width: int = 100, color: bool = False, ascii_only: bool = False) -> str:
    """The drawing as text that ends in a newline; every line fits `width` columns.

    title: a first line. ascii_only: no character outside ASCII, names included. Colour adds escape sequences and changes no character.
    """
    writer = _Writer(layout, max(width, LEAST))
    if title:
        writer.lines += [Line().put(0, cut(title, writer.width), "bold"), Line()]
    for band in layout.bands:
        writer.band(band)
    writer.legend(layout.legend)
    return "\n".join(line.text(color, ascii_only) for line in writer.lines) + "\n"


@dataclass(frozen=True)
class _Frame:
    """Columns of a block's frame, and of its stream."""

    left: int
    stream: int
    right: int


class _Writer:
    def __init__(self, layout: Layout, width: int) -> None:
        self.width = width
        self.lines: list[Line] = []
        self.at: list[int] = []
        x = -2 if layout.tracks and not layout.tracks[0].wide else -1
        for track in layout.tracks:
            x += 3 if track.wide else 2
            self.at.append(x)
        wide = [x for x, track in zip(self.at, layout.tracks, strict=True) if track.wide]
        if wide and wide[-1] > width - 34:              # too many lines for this terminal: they move together
            self.at = [min(x, width - 34) for x in self.at]
        found = [row for band in layout.bands if isinstance(band.body, Run) for view in band.body.views for row in view.rows]
        self.box = min(max([16, *(rows.marks_need(r) for r in found)]), width // 2 - 6)
        heads = [columns(plain(label)) + 16 for band in layout.bands if isinstance(band.body, Run) for label in band.body.labels]
        self.inside = max([30, *heads, *(self.box + rows.box_need(r, self.box) for r in found)])

    def right(self, stream: int) -> int:
        """The column of the right edge of a stream's frames."""
        return min(self.width - 1, stream + self.inside)

    def base(self, band: Band, gone: frozenset[int] = frozenset()) -> Line:
        """The lines that pass a band by; `gone`: tracks that have ended."""
        line = Line()
        for rail in band.rails:
            if rail.track in gone:
                continue
            char = _stream(rail.lanes) if rail.kind == "stream" else "┊" if rail.kind == "memory" else "│"
            line.put(self.at[rail.track], char, "stream")
        return line

    def band(self, band: Band) -> None:
        body = band.body
        if isinstance(body, Caption):
            self.lines += [Line()] if self.lines and self.lines[-1].cells else []
            self.lines += [Line().put(0, text, "quiet") for text in wrapped(body.text, self.width, columns)]
        elif isinstance(body, Stem):
            self._stem(band, body)
        elif isinstance(body, Run):
            self._run(band, body)
        elif isinstance(body, Joint):
            self._entries(band, body.entries, True)
        else:
            self._end(band, body)
        self._leaves(band)

    def _stem(self, band: Band, stem: Stem) -> None:
        x = self.at[band.track]
        gone = self._entries(band, stem.entries, stem.continues)
        lead = x + 2 if stem.continues else x
        line = self.base(band, gone)
        if stem.continues:
            line.put(x, "┃", "stream")
        details = plural(stem.sites, "site") + (f", {stem.lanes} lanes" if stem.lanes > 1 else "")
        name = cut(stem.name, max(8, self.width - lead - len(details) - 2))
        self.lines.append(line.put(lead, name, "bold").put(lead + columns(name) + 2, details, "quiet"))
        said = f"{stem.path or '(model)'}: no skip around it" if stem.standing else f"stem {stem.path or '(model)'}"
        node = self.base(band, gone).put(x, "■" if stem.standing else "▣", tone(stem.badges) or "stream")
        room = self.right(x) - x - 3 - badge_width(stem.badges) if stem.badges else self.width - x - 2
        self.lines.append(node.put(x + 2, cut(said, room), tone(stem.badges)))
        put_badges(node, stem.badges, self.right(x) - 2)
        self.lines.append(self.base(band, gone).put(x, _stream(band.lanes), "stream"))

    def _entries(self, band: Band, entries: tuple[Entry, ...], from_above: bool) -> frozenset[int]:
        """Long skips that end here; gives the tracks that have ended."""
        x, gone = self.at[band.track], set[int]()
        for entry in entries:
            line = self.base(band, frozenset(gone))
            mark = {"concat": "◫", "add": "⊕", "follows": "╮"}[entry.kind] if from_above or entry.kind == "follows" else "╮"
            line.put(x, mark, "stream")
            if entry.track >= 0:
                start = self.at[entry.track]
                ends = any(r.track == entry.track and r.ends for r in band.rails)
                low, high = min(start, x), max(start, x)
                line.cross(low + 1, high - 1, style="stream")
                line.put(start, ("╰" if start < x else "╯") if ends else ("├" if start < x else "┤"), "stream")
                gone |= {entry.track} if ends else set()
            said = {"add": "long skip", "concat": "long skip, concatenated", "follows": ""}[entry.kind] if entry.track >= 0 else entry.title
            self.lines.append(line.put(x + 2, cut(said, self.width - x - 2), "quiet"))
        return frozenset(gone)

    def _leaves(self, band: Band) -> None:
        x = self.at[band.track] if band.track >= 0 else 0
        begun: list[int] = []
        for track, kind in band.leaves:
            line, to = self.base(band), self.at[track]
            for other in begun:
                line.put(other, "│", "stream")
            ended = isinstance(band.body, End) and band.body.output
            line.put(x, ("┫" if to < x else "┣") if not ended else "╯", "stream")
            line.cross(min(to, x) + 1, max(to, x) - 1, "╌" if kind == "memory" else "─", "stream")
            self.lines.append(line.put(to, "╭" if to < x else "╮", "stream"))
            begun.append(to)

    def _end(self, band: Band, end: End) -> None:
        x = self.at[band.track]
        if end.norm is not None:
            line = self.base(band).put(x, "◇", tone(end.badges) or "stream")
            room = self.right(x) - x - 3 - badge_width(end.badges) if end.badges else self.width - x - 2
            self.lines.append(line.put(x + 2, cut(f"{end.norm.text} {end.norm.title}", room), tone(end.badges)))
            put_badges(line, end.badges, self.right(x) - 2)
        elif end.badges and not end.output:
            self.lines.append(self.base(band).put(x, _stream(band.lanes), "stream"))
            put_badges(self.lines[-1], end.badges, self.right(x) - 2)
        if end.output:
            self.lines.append(self.base(band).put(x, "▼", "stream"))
            if end.norm is None:
                put_badges(self.lines[-1], end.badges, self.right(x) - 2)

    def _run(self, band: Band, run: Run) -> None:
        x = self.at[band.track]
        group = run.count > 1 and len(run.views) > 1
        if group:
            line = self.base(band).put(x, _stream(band.lanes), "stream").put(x + 2, f"x{run.count}", "bold")
            self.lines.append(line.put(x + 4 + len(str(run.count)), f"these {len(run.views)} blocks in turn", "quiet"))
        for number, (label, view) in enumerate(zip(run.labels, run.views, strict=True)):
            last = number == len(run.views) - 1
            self._block(band, view, f"x{run.count}" if run.count > 1 and not group else "", label + (" (one module)" if run.one_module else ""), last)

    def _block(self, band: Band, view: View, times: str, label: str, last: bool) -> None:
        x = self.at[band.track]
        frame = _Frame(x - 2, x, self.right(x))
        line = self._border(band, frame, "╭", "╮", frozenset())
        at = x + 2
        if times:
            line.put(at, f" {times}", "bold")
            at += len(times) + 1
        line.put(at, f" {cut(label or '(model)', frame.right - at - 4 - badge_width(view.badges))} ")
        put_badges(line, view.badges, frame.right - 2)
        self.lines.append(line)
        numbers = dict(band.feeds)
        fed = [numbers[name] for row in view.rows for name in (*(m for b in row.boxes for m in b.memories), row.carried) if name in numbers]
        ends = {r.track: fed.count(r.track) for r in band.rails if r.ends and last and r.track in fed}
        place = rows.Place(x, x + self.box, frame.right, band.lanes, lambda gone: self._inside(band, frame, gone),
                           {name: self.at[track] for name, track in numbers.items() if track >= 0}, numbers, ends)
        for row in view.rows:
            self.lines += rows.draw(row, place)
        self.lines.append(self._border(band, frame, "╰", "╯", frozenset(ends)))

    def _inside(self, band: Band, frame: _Frame, gone: frozenset[int]) -> Line:
        return self.base(band, gone).put(frame.left, "│", "quiet").put(frame.right, "│", "quiet")

    def _border(self, band: Band, frame: _Frame, left: str, right: str, gone: frozenset[int]) -> Line:
        line = self.base(band, gone).put(frame.left, left, "quiet")
        for at in range(frame.left + 1, frame.right):
            line.put(at, "─", "quiet")
        return line.put(frame.right, right, "quiet").put(frame.stream, _stream(band.lanes), "stream")

    def legend(self, found: tuple[Badge, ...]) -> None:
        """Findings as text."""
        for number, badge in enumerate(found):
            if not number:
                self.lines.append(Line())
            more = f" (x{len(badge.numbers)})" if len(badge.numbers) > 1 else ""
            for k, text in enumerate(wrapped(badge.text + more, self.width - 4, columns, self.width)):
                line = Line().put(0 if not k else 4, text)
                self.lines.append(line.put(0, cut(badge.code, self.width), tone((badge,))) if not k else line)


def _stream(lanes: int) -> str:
    return "┃" if lanes == 1 else "║"
