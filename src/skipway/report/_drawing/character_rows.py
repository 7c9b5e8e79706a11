"""One site in plain characters: a read line, what stands between, and a write line that ends in the join."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from skipway.report._drawing.canvas import Line, columns, cut
from skipway.report._drawing.parts import Badge, Box, Mark, Row
from skipway.report._drawing.svg_plan import inner, kind
from skipway.report._escape import plain
from skipway.report._groups import plural

MARKS = 30              # columns that marks of a line take at most
MOST = 3                # badges of a site


@dataclass
class Place:
    """Where the rows of a block go. `ends`: how many more times a track that ends here is read."""

    stream: int
    box: int
    right: int
    lanes: int
    base: Callable[[frozenset[int]], Line]          # a line with the frame and all that passes, without these tracks
    tracks: dict[str, int]                          # feed -> column of its track
    numbers: dict[str, int]                         # feed -> track
    ends: dict[int, int] = field(default_factory=dict)

    def line(self) -> Line:
        """An empty line of the block, with the stream."""
        return self.bare().put(self.stream, "┃" if self.lanes == 1 else "║", "stream")

    def bare(self) -> Line:
        return self.base(frozenset(track for track, left in self.ends.items() if left <= 0))

    def feed(self, name: str, to: int, char: str) -> Line | None:
        """A line with an arrow from a feed's track to a column; None where it has no track."""
        track = self.numbers.get(name, -1)
        if track < 0:
            return None
        line, start = self.line(), self.tracks[name]
        line.cross(min(start, to) + 1, max(start, to) - 1, char, "stream")
        turn = ""
        if track in self.ends:
            self.ends[track] -= 1
            turn = "╰" if self.ends[track] <= 0 else ""
        return line.put(start, turn or "├", "stream")


def draw(row: Row, place: Place) -> list[Line]:
    """The lines of a row."""
    found = row.all_badges()
    if row.standing:
        said = _stands(row)
        lines = [place.line().put(place.stream, "■", tone(found) or "stream")]
        lines[0].put(place.stream + 2, cut(said, place.right - place.stream - 4 - badge_width(found[:1])), tone(found))
    elif len(row.boxes) > 1:
        lines = _several(row, place)
    else:
        lines = _one(row, place)
    for one in row.after:
        lines.append(_on_stream(place, "◇", one.text, tone(one.badges), place.right))
    for line, badge in zip(lines, found[:MOST], strict=False):
        put_badges(line, (badge,), place.right - 2)
    return lines


def _stands(row: Row) -> str:
    return f"{row.boxes[0].path}: no skip around it" + "".join(f" (after {m.text} {m.title})" for m in row.boxes[0].inside)


def _one(row: Row, place: Place) -> list[Line]:
    x, bx, box = place.stream, place.box, row.boxes[0]
    lines = [_read(row.reads, place)]
    _name(lines[0], box, place, bool(row.all_badges()))
    lines += _between(row, place)
    for name in box.memories:
        line = place.feed(name, bx, "╌") or place.line()
        if name in place.numbers and place.numbers[name] >= 0:
            line.put(bx - 1, "▶", "stream")
        lines.append(line.put(bx, "│").put(bx + 2, cut(f"reads {name}", place.right - bx - 4), "quiet"))
    last = _write(row, place).cross(x + 2, bx - 1)
    _put_marks(last, row.writes, x + 3, bx - 2, True)
    last.put(bx, "╰").put(bx + 2, cut(box.path, place.right - bx - 4), "quiet")
    return [*lines, last]


def _several(row: Row, place: Place) -> list[Line]:
    """Boxes under each other that read one state, summed on their right."""
    x, bx, edge = place.stream, place.box, place.right - 3
    bus = min(bx - 3, x + 2 + sum(columns(cut(m.text, MARKS)) + 3 for m in row.reads))
    out = []
    for number, box in enumerate(row.boxes):
        first, last = not number, number == len(row.boxes) - 1
        line = place.line()
        if first:
            line.put(x, _tap(place), "stream").cross(x + 1, bx - 2)
            _put_marks(line, row.reads, x + 2, bus - 1)
        else:
            line.cross(bus, bx - 2)
        line.put(bus, "┬" if first else "╰" if last else "├")
        _put_marks(line, box.reads, bus + 2, bx - 2)
        _name(line.put(bx - 1, "▶").put(bx, "╭"), box, place, bool(row.all_badges()), 3)
        below = place.line().put(bx, "╰").put(bx + 2, cut(box.path, edge - bx - 3), "quiet")
        if not last:
            below.put(bus, "│")
        if first:
            line.put(edge, "╮")
        for one in (line, below) if not first else (below,):
            one.put(edge, "┤" if one is line else "│")
        out += [line, below]
        for name in box.memories:
            fed = place.feed(name, bx, "╌") or place.line()
            out.append(fed.put(bx, "│").put(bx + 2, cut(f"reads {name}", edge - bx - 3), "quiet").put(edge, "│"))
    out += _between(row, place)
    closing = _write(row, place).cross(x + 2, edge - 1)
    _put_marks(closing, row.writes, x + 3, bx - 2, True)
    return [*out, closing.put(edge, "╯")]


def _tap(place: Place) -> str:
    return "┣" if place.lanes == 1 else "╠"


def _read(reads: Sequence[Mark], place: Place) -> Line:
    line = place.line().put(place.stream, _tap(place), "stream").cross(place.stream + 1, place.box - 2)
    _put_marks(line, reads, place.stream + 3, place.box - 2)
    return line.put(place.box - 1, "▶").put(place.box, "╭")


def _write(row: Row, place: Place) -> Line:
    """The line of the join, with a shortcut that comes from elsewhere."""
    line = (place.feed(row.carried, place.stream, "─") if row.carried else None) or place.line()
    return line.put(place.stream, "⊕", tone(row.badges) or "stream").put(place.stream + 1, "◀")


def _between(row: Row, place: Place) -> list[Line]:
    """What stands on the stream between read and join, and reads and shortcuts of earlier states."""
    out = []
    said = _on_shortcut(row)
    if said:
        out.append(_on_stream(place, "▣" if row.shortcut else "", said, tone(row.shortcut.badges) if row.shortcut else "", place.box - 1))
        if len(row.boxes) == 1:
            out[0].put(place.box, "│")
    return out + [_on_stream(place, "", said, "", place.right - 1) for said in _from_before(row)]


def _on_shortcut(row: Row) -> str:
    return " ".join(w for w in (row.shortcut.text if row.shortcut else "", f"gain {row.gain}" if row.gain else "") if w)


def _from_before(row: Row) -> list[str]:
    """What is said of reads and shortcuts of earlier states."""
    backs = ((row.read_back, "reads the state"), (row.shortcut_back, "the shortcut is the state"))
    return [f"{what} of {plural(back, 'site')} before" for back, what in backs if back]


def _on_stream(place: Place, char: str, said: str, style: str, to: int) -> Line:
    line = place.line()
    if char:
        line.put(place.stream, char, style or "stream")
    return line.put(place.stream + 2, cut(said, to - place.stream - 3), style)


def _name(line: Line, box: Box, place: Place, has_badges: bool, less: int = 0) -> None:
    more = [m.text + " inside" for m in box.inside] + ([inner(box)] if box.inner else [])
    room = place.right - place.box - 4 - less - (9 if has_badges else 0)
    name = cut(kind(box), room)
    line.put(place.box + 2, name, tone(box.badges) or "bold")
    if more:
        line.put(place.box + 3 + columns(name), cut(f"({', '.join(more)})", max(0, room - columns(name) - 1)), "quiet")


def _put_marks(line: Line, marks: Sequence[Mark], first: int, last: int, backwards: bool = False) -> None:
    """Marks between two columns, from the left or (backwards) from the right; they share the room where it is short."""
    for number, one in enumerate(marks):
        said = cut(one.text, min(MARKS, max(0, last - first) // (len(marks) - number)))
        size = columns(said)
        if not size:
            continue
        line.put(last - size if backwards else first, said, tone(one.badges))
        first, last = (first, last - size - 2) if backwards else (first + size + 2, last)


def marks_need(row: Row) -> int:
    """Columns between the stream and the boxes that the marks of a row would like to have."""
    if row.standing:
        return 0
    several = len(row.boxes) > 1
    reads = sum(columns(cut(m.text, MARKS)) + 2 for m in row.reads) + 3
    own = max((sum(columns(cut(m.text, MARKS)) + 2 for m in b.reads) for b in row.boxes), default=0)
    writes = sum(columns(cut(m.text, MARKS)) + 2 for m in row.writes) + 2
    return max(reads + own + (3 if several else 0), writes, columns(_on_shortcut(row)) + 2) + 2


def box_need(row: Row, left: int) -> int:
    """Columns that the boxes of a row would like to have."""
    if row.standing:
        return columns(plain(_stands(row))) + 16 - left
    wide = []
    for box in row.boxes:
        more = sum(columns(m.text) + 9 for m in box.inside) + (len(inner(box)) + 3 if box.inner else 0)
        wide += [columns(kind(box)) + more, columns(plain(box.path)), *(columns(plain(n)) + 6 for n in box.memories)]
    wide += [columns(said) + 2 - left for said in _from_before(row)]
    return max(wide, default=0) + 5 + (3 if len(row.boxes) > 1 else 0) + (9 if row.all_badges() else 0)


def tone(found: Sequence[Badge]) -> str:
    """The style of the worst badge, or none."""
    return found[0].severity if found and found[0].severity in ("error", "warning", "note") else ""


def badge_width(found: Sequence[Badge]) -> int:
    return sum(columns(cut(b.code, 8)) + 1 for b in found[:MOST]) + (1 if found else 0)


def put_badges(line: Line, found: Sequence[Badge], right: int) -> None:
    """Badges that end at a column."""
    at = right - badge_width(found) + 2
    for badge in found[:MOST]:
        said = cut(badge.code, 8)
        line.put(at, f" {said}", tone((badge,)))
        at += columns(said) + 1
