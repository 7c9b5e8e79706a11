"""One site as SVG: the read line with its norms, the branch, the write line with its scales, and the join. The stream is at x = 0."""

from dataclasses import dataclass

from skipway.report._drawing.measure import fitted, width
from skipway.report._drawing.parts import Badge, Box, Row
from skipway.report._drawing.svg_ink import badges, join, mark, num, path, rect, severity, tap, text, tip, titled
from skipway.report._drawing.svg_plan import GAP, HALF, READ, Plan, inner, kind, mark_width

BOX = 44            # height of one of several branches
BETWEEN = 12


@dataclass(frozen=True)
class Shape:
    """Heights of a row, from its top."""

    height: int
    write: int                              # the join
    boxes: tuple[tuple[int, int], ...]      # top and height of each
    reads: tuple[int, ...]                  # read line of each
    feeds: tuple[tuple[str, int], ...]      # where a memory comes in, by the stream's name


def shape(row: Row) -> Shape:
    """Where everything of a row is."""
    below = 30 * len(row.after)
    if row.standing:
        return Shape(68, 34, ((12, 44),), (34,), ())
    if len(row.boxes) > 1:
        tops = tuple(8 + k * (BOX + BETWEEN) for k in range(len(row.boxes)))
        write = tops[-1] + BOX + 18
        feeds = tuple((name, top + BOX - 10) for top, box in zip(tops, row.boxes, strict=True) for name in box.memories)
        return Shape(write + 18 + below, write, tuple((top, BOX) for top in tops), tuple(top + 12 for top in tops), (*feeds, *_carried(row, write)))
    gap = 46 if row.shortcut else 24
    memories = row.boxes[0].memories if row.boxes else ()
    gap = max(gap, 20 + 18 * len(memories))
    feeds = tuple((name, READ + round(gap * (k + 1) / (len(memories) + 1))) for k, name in enumerate(memories))
    return Shape(gap + 40 + below, READ + gap, ((READ - 12, gap + 24),), (READ,), (*feeds, *_carried(row, READ + gap)))


def _carried(row: Row, write: int) -> tuple[tuple[str, int], ...]:
    return ((row.carried, write),) if row.carried else ()


def draw(row: Row, plan: Plan, earlier: tuple[int, ...] = ()) -> str:
    """The row without its stream line. earlier: read lines of the rows before it in the block, as negative distances from its top."""
    at = shape(row)
    if row.standing:
        return standing(row.boxes[0], "no skip around it", at.boxes[0][0], plan, row.title, row.badges)
    several = len(row.boxes) > 1
    out = [_bypasses(row, at, earlier)]
    out.append(_reads(row, at, plan, earlier))
    for box, (top, height) in zip(row.boxes, at.boxes, strict=True):
        out.append(_box(box, plan.box, top, plan.box_width, height))
    out.append(_writes(row, at, plan, several))
    out += [tap(0, at.reads[0], row.lanes)] if not row.read_back else []
    if row.shortcut:
        wide = mark_width(row.shortcut)
        out.append(mark(row.shortcut, -wide / 2, (at.reads[0] + at.write) / 2))
    if row.gain:
        y = at.write - 6 if row.shortcut else (at.reads[0] + at.write) / 2
        said = text(-11, y - 2, "gain", "sw-quiet sw-small sw-end") + text(-11, y + 9, row.gain, "sw-text sw-small sw-end")
        out.append(titled(f"the shortcut's gain: {row.gain}", said))
    out.append(titled(row.title, join(0, at.write, row.lanes, severity(row.badges))))
    for k, one in enumerate(row.after):
        out.append(mark(one, -mark_width(one) / 2, at.write + 26 + 30 * k))
    out.append(_badges(row, at, plan))
    return "".join(out)


def _badges(row: Row, at: Shape, plan: Plan) -> str:
    found = row.all_badges()
    room = max(1, (at.height - 12) // 22)
    top = (at.boxes[0][0] + at.boxes[-1][0] + at.boxes[-1][1]) / 2
    return badges(found, plan.badge, top - 11 * (min(len(found), room) - 1), room)


def _reads(row: Row, at: Shape, plan: Plan, earlier: tuple[int, ...]) -> str:
    """From the stream through the norms to the boxes."""
    start, first = 0, at.reads[0]
    lines, marks = [], []
    if row.read_back:
        back = earlier[-row.read_back] if row.read_back <= len(earlier) else 0
        lines.append(f"M0 {num(back)}H10Q16 {num(back)} 16 {num(back + 6)}V{num(first - 6)}Q16 {num(first)} 22 {num(first)}")
        start = 22
    x = max(start, 26)
    for one in row.reads:
        marks.append(mark(one, x, first))
        x += mark_width(one) + GAP
    bus = x + 4
    lines.append(f"M{start} {num(first)}H{num(plan.box - 1)}")
    for box, y in zip(row.boxes, at.reads, strict=True):
        if y != first:
            lines.append(f"M{num(bus)} {num(first)}V{num(y - 6)}Q{num(bus)} {num(y)} {num(bus + 6)} {num(y)}H{num(plan.box - 1)}")
        place = (bus + 14 if len(row.boxes) > 1 else x)
        for one in box.reads:
            marks.append(mark(one, place, y))
            place += mark_width(one) + GAP
        marks.append(tip(plan.box, y, "right"))
    return path("sw-branch", "".join(lines)) + "".join(marks)


def _writes(row: Row, at: Shape, plan: Plan, several: bool) -> str:
    """From the boxes through scales, drops and norms to the join; several boxes are summed on their right."""
    start = plan.box
    lines = []
    if several:
        edge, bus = plan.box + plan.box_width, plan.box + plan.box_width + 12
        for k, (top, height) in enumerate(at.boxes):
            y = top + height / 2
            lines.append(f"M{num(edge)} {num(y)}H{num(bus - 6)}Q{num(bus)} {num(y)} {num(bus)} {num(y + 6)}" if not k else
                         f"M{num(edge)} {num(y)}H{num(bus)}")
        y = at.boxes[0][0] + at.boxes[0][1] / 2 + 6
        lines.append(f"M{num(bus)} {num(y)}V{num(at.write - 6)}Q{num(bus)} {num(at.write)} {num(bus - 6)} {num(at.write)}H{num(plan.box)}")
    lines.append(f"M{num(start)} {num(at.write)}H9")
    out = [path("sw-branch", "".join(lines)), tip(9 + 3 * (min(row.lanes, 4) - 1), at.write, "left")]
    x = plan.box - 16.0
    for one in row.writes:
        x -= mark_width(one)
        out.append(mark(one, x, at.write))
        x -= GAP
    return "".join(out)


def _bypasses(row: Row, at: Shape, earlier: tuple[int, ...]) -> str:
    """A shortcut that begins at an earlier state."""
    if not row.shortcut_back:
        return ""
    back = (earlier[-row.shortcut_back] if row.shortcut_back <= len(earlier) else 0) - 10
    y = at.write
    return path("sw-stream sw-skip", f"M0 {num(back)}H-10Q-18 {num(back)} -18 {num(back + 8)}V{num(y - 8)}Q-18 {num(y)} -10 {num(y)}H0")


def _box(box: Box, x: float, top: float, wide: float, height: float) -> str:
    out = [rect(f"sw-box{severity(box.badges)}", x + 0.5, top + 0.5, wide - 1, height - 1, 6),
           path(f"sw-k-{box.kind if box.kind in KNOWN else 'other'}", f"M{num(x + 6.5)} {num(top + 8)}h3v{num(height - 16)}h-3z")]
    name = kind(box)
    line = top + height / 2 + (-4 if box.path else 4.5)
    out.append(text(x + 18, line, fitted(name, 12.5, wide - 28), "sw-text sw-kind"))
    right = x + wide - 8
    for one in box.inside:
        right -= mark_width(one)
        out.append(mark(one, right, top + 14))
        right -= GAP
    if box.inner:
        said = inner(box)
        out.append(text(right, line, said, "sw-quiet sw-small sw-end"))
        start = right - width(said, 10.5) - 8
        out.append(path("sw-stream sw-lane", f"M{num(start)} {num(line - 11)}v14") + rect("sw-join", start - 3, line - 7, 6, 6, 3))
    if box.memories:
        said = fitted("reads " + ", ".join(box.memories), 10.5, wide * 0.5)
        out.append(text(right, line, said, "sw-quiet sw-small sw-end"))
    if box.path:
        out.append(text(x + 18, line + 16, fitted(box.path, 10.5, wide - 28, True), "sw-mono"))
    return titled(box.path, "".join(out))


KNOWN = ("self_attention", "cross_attention", "ffn", "moe", "conv", "ssm")


def standing(box: Box, said: str, top: float, plan: Plan, title: str, found: tuple[Badge, ...]) -> str:
    """A sublayer on the stream itself."""
    wide = plan.box + plan.box_width + HALF - 8
    body = rect(f"sw-node{severity(found)}", 8 - HALF, top, wide, 44, 8)
    for one in box.inside:
        body += mark(one, wide + 8 - HALF - 12 - mark_width(one), top + 22)
    body += text(22 - HALF, top + 19, fitted(box.path, 12.5, wide - 90), "sw-text sw-kind") + text(22 - HALF, top + 35, said, "sw-quiet")
    return titled(title, body) + badges(found, plan.badge, top + 22 - 11 * (min(len(found), 2) - 1), 2)
