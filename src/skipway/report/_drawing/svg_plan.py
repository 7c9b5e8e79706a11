"""Where things are in pixels: one plan for a whole drawing, so that its strips stand under each other."""

from collections.abc import Iterator
from dataclasses import dataclass

from skipway.report._drawing.measure import fitted, width
from skipway.report._drawing.parts import Band, Box, End, Layout, Mark, Row, Run, Stem

MARGIN = 16
RAIL = 16               # between rails
HALF = 54               # from a stream to the left of its frame: half a norm fits
COLUMN = 18             # from a stream's line to the frame of the next column
LANE = 6                # between lanes
LANES = 4               # lanes drawn; more are told in words
MARK = 20               # height of a mark
GAP = 6                 # between marks
READ = 20               # from the top of a row to its read line
BADGE = 62
WIDEST_BOX, NARROWEST_BOX = 270, 190


@dataclass(frozen=True)
class Plan:
    """Positions that all bands share. Positions of rows are relative to their stream at x = 0."""

    tracks: tuple[int, ...]             # x of each track
    box: int                            # left edge of branches
    box_width: int
    right: int                          # right edge of frames
    badges: bool
    width: int

    @property
    def badge(self) -> int:
        return self.right - BADGE - 10


def plan(layout: Layout, least: int = 0) -> Plan:
    """The plan of a layout, at least `least` pixels wide."""
    tracks: list[int] = []
    x = MARGIN + 4 - RAIL if layout.tracks and not layout.tracks[0].wide else MARGIN - COLUMN
    for track in layout.tracks:
        x += HALF + COLUMN if track.wide else RAIL
        tracks.append(x)
    rows = list(_rows(layout.bands))
    box = 26 + max([82, *(_reading(r) for r in rows), *(_writing(r) for r in rows)]) + 18
    wide = max([NARROWEST_BOX, *(_box(b) for r in rows for b in r.boxes)])
    box_width = min(WIDEST_BOX, wide)
    parallel = any(len(r.boxes) > 1 for r in rows)
    badges = any(_badged(band) for band in layout.bands)
    right = box + box_width + 12 + (14 if parallel else 0) + (BADGE + 8 if badges else 0)
    last = max((t for t, track in zip(tracks, layout.tracks, strict=True) if track.wide), default=MARGIN + HALF)
    return Plan(tuple(tracks), box, box_width, right, badges, max(last + right + MARGIN + 8, least, 440))


def _rows(bands: tuple[Band, ...]) -> Iterator[Row]:
    for band in bands:
        if isinstance(band.body, Run):
            for view in band.body.views:
                yield from view.rows


def _badged(band: Band) -> bool:
    """Whether a band has a badge in the column of badges."""
    body = band.body
    if isinstance(body, Run):
        return any(view.badges or any(row.all_badges() for row in view.rows) for view in body.views)
    return isinstance(body, (Stem, End)) and bool(body.badges)


def mark_width(mark: Mark) -> int:
    """Pixels that a mark takes."""
    return round(width(shown(mark), 10.5)) + 16


def shown(mark: Mark) -> str:
    """A mark's text as it is drawn."""
    return fitted(mark.text, 10.5, 110)


def _reading(row: Row) -> int:
    shared = sum(mark_width(m) + GAP for m in row.reads)
    own = max((sum(mark_width(m) + GAP for m in b.reads) for b in row.boxes), default=0)
    return shared + own + (22 if len(row.boxes) > 1 or row.read_back else 0)


def _writing(row: Row) -> int:
    return sum(mark_width(m) + GAP for m in row.writes)


def _box(box: Box) -> int:
    """The width that a box would like to have."""
    head = width(kind(box), 12.5) * 1.06 + sum(mark_width(m) + GAP for m in box.inside)
    head += sum(width(f"reads {name}", 10.5) + 12 for name in box.memories) + (width(inner(box), 10.5) + 26 if box.inner else 0)
    return round(max(head, width(box.path, 10.5, True)) + 34)


def kind(box: Box) -> str:
    """The kind of branch as it is written in its box."""
    return box.kind.replace("_", " ")


def inner(box: Box) -> str:
    """What is said of side streams inside a box."""
    return f"{box.inner} inner site{'s' if box.inner > 1 else ''}"
