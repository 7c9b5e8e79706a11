"""A band as SVG: the lines that pass it by, and its stem, blocks, joint or end."""

from dataclasses import dataclass

from skipway.report._drawing import svg_rows as rows
from skipway.report._drawing.measure import fitted, width, wrapped
from skipway.report._drawing.parts import Band, Box, Caption, End, Entry, Joint, Run, Stem, View
from skipway.report._drawing.svg_ink import badges, join, num, path, rect, severity, stream, tap, text, tip, titled
from skipway.report._drawing.svg_plan import BADGE, HALF, MARGIN, Plan
from skipway.report._groups import plural

HEADER = 34             # from the top of a frame to its first row
FOOT = 6                # below the last row
SPACE = 8               # around a frame
TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True)
class Strip:
    """A band's SVG text and its height. `head`: what tells it from its like, the path of its block."""

    body: str
    height: int
    head: str = ""

    @property
    def all(self) -> str:
        return self.body + self.head


def draw(band: Band, plan: Plan, foldable: bool = False) -> Strip:
    """The band with its top at 0. foldable: show that it can be opened."""
    body, head = band.body, ""
    if isinstance(body, Caption):
        lines = wrapped(body.text, plan.width - 2 * MARGIN, lambda t: width(t, 11))
        return Strip("".join(text(MARGIN, 22 + 16 * k, line, "sw-quiet") for k, line in enumerate(lines)), 20 + 16 * len(lines))
    if isinstance(body, Stem):
        inside, height, ends = _stem(band, body, plan)
    elif isinstance(body, Run):
        inside, height, ends, head = _run(band, body, plan, foldable)
    elif isinstance(body, Joint):
        inside, height, ends = _entries(band, body.entries, plan, 4, True)
        height += 6
        inside = stream(plan.tracks[band.track], 0, height + (20 if band.leaves else 0), band.lanes) + inside
    else:
        inside, height, ends = _end(band, body, plan)
    if band.leaves:
        inside += _leaves(band, plan, height)
        height += 20
    return Strip(_rails(band, plan, height, ends) + inside, height, head)


def _rails(band: Band, plan: Plan, height: int, ends: dict[int, int]) -> str:
    """Lines that come from above; `ends`: the height at which one ends."""
    out = []
    for rail in band.rails:
        x = plan.tracks[rail.track]
        bottom = ends.get(rail.track, 0) if rail.ends else height
        if rail.kind == "stream":
            out.append(stream(x, 0, bottom, rail.lanes))
        elif bottom > 0:
            kind = "sw-stream sw-memory" if rail.kind == "memory" else "sw-stream sw-skip"
            out.append(path(kind, f"M{x} 0V{num(bottom - (8 if rail.ends else 0))}"))
    return "".join(out)


def _leaves(band: Band, plan: Plan, top: int) -> str:
    """Where long skips begin: from the stream to the tracks on its left."""
    x = plan.tracks[band.track]
    out = []
    for track, kind in band.leaves:
        to = plan.tracks[track]
        side = 8 if to < x else -8
        look = "sw-stream sw-memory" if kind == "memory" else "sw-stream sw-skip"
        out.append(path(look, f"M{x} {top + 6}H{to + side}Q{to} {top + 6} {to} {top + 14}V{top + 20}"))
    over = stream(x, top, top + 20, band.lanes) if not isinstance(band.body, End) or not band.body.output else ""
    return "".join(out) + over + tap(x, top + 6, band.lanes)


def _entries(band: Band, entries: tuple[Entry, ...], plan: Plan, top: int, from_above: bool) -> tuple[str, int, dict[int, int]]:
    """Long skips that end here, one under the other."""
    x, out, ends = plan.tracks[band.track], [], dict[int, int]()
    y = top
    for entry in entries:
        y += 14
        if entry.track >= 0:
            start = plan.tracks[entry.track]
            side = 8 if start < x else -8
            out.append(path("sw-stream sw-skip", f"M{start} {y - 8}Q{start} {y} {start + side} {y}H{x - side}") if from_above else
                       path("sw-stream sw-skip", f"M{start} {y - 8}Q{start} {y} {start + side} {y}H{x - 8}Q{x} {y} {x} {y + 8}"))
            ends[entry.track] = y
        said = {"add": "long skip", "concat": "long skip, concatenated", "follows": ""}[entry.kind]
        if entry.track < 0:
            said = entry.title
        if from_above:
            symbol = join(x, y, band.lanes, "", "concat" if entry.kind == "concat" else "add")
            out.append(titled(entry.title, symbol))
        if said:
            out.append(text(x + 16, y + 4, fitted(said, 11, plan.right - 20), "sw-quiet"))
        y += 14
    return "".join(out), y, ends


def _stem(band: Band, stem: Stem, plan: Plan) -> tuple[str, int, dict[int, int]]:
    x = plan.tracks[band.track]
    inside, top, ends = _entries(band, stem.entries, plan, 4, stem.continues) if stem.entries else ("", 0, {})
    left = x + 8 - HALF
    name = fitted(stem.name, 14, 220)
    details = plural(stem.sites, "site") + (f", {stem.lanes} lanes" if stem.lanes > 1 else "")
    start = left if not stem.continues else x + 12
    head = text(start, top + 20, name, "sw-text sw-name") + text(start + width(name, 14) * 1.03 + 10, top + 20, details, "sw-quiet")
    box = top + 32
    line = stream(x, 0, box, 1) if stem.continues else path("sw-stream", f"M{x} {top - 6}V{box}") if stem.entries else ""
    out = [line, inside, head]
    if stem.standing:
        body = rows.standing(Box("standing", stem.path), "no skip around it", 0, plan, f"{stem.path}: no skip around it", stem.badges)
        out.append(f'<g transform="translate({x} {box})">{body}</g>')
        box += 44
    else:
        room = plan.right + HALF - 20 - (BADGE + 12 if plan.badges else 0)
        path_ = fitted(stem.path or "(model)", 10.5, room - 80, True)
        wide = max(2 * (HALF - 8), width(path_, 10.5, True) + 66)
        body = rect(f"sw-node{severity(stem.badges)}", left, box, wide, 28, 6) + text(left + 12, box + 18, "stem", "sw-text sw-small")
        body += text(left + 44, box + 18, path_, "sw-mono")
        out.append(titled(f"stem {stem.path}", body) + badges(stem.badges, x + plan.badge, box + 14, 1))
        box += 28
    foot = box + 10
    out.append(stream(x, box, foot, band.lanes))
    return "".join(out), foot, ends


def _end(band: Band, end: End, plan: Plan) -> tuple[str, int, dict[int, int]]:
    x, out, y = plan.tracks[band.track], [], 0
    if end.norm is not None:
        left = x + 8 - HALF
        path_ = fitted(end.norm.title, 10.5, plan.right - 120, True)
        label = end.norm.text
        wide = width(path_, 10.5, True) + width(label, 10.5) + 38
        out.append(stream(x, 0, 10, band.lanes))
        body = rect(f"sw-norm{severity(end.badges)}", left + 0.5, 10.5, wide, 27, 13.5) + text(left + 14, 28, label, "sw-text sw-small")
        body += text(left + 22 + width(label, 10.5), 28, path_, "sw-mono")
        out.append(titled(end.norm.title, body) + badges(end.badges, x + plan.badge, 24, 1))
        y = 38
    if end.norm is None and end.badges:
        out.append(stream(x, 0, 22, band.lanes) + badges(end.badges, x + plan.badge, 14, 1))
        y = 16
    if end.output:
        out.append(path("sw-stream", f"M{x} {y}V{y + 16}") + path("sw-dot", f"M{x - 6} {y + 12}h12l-6 10z"))
        y += 34
    else:
        out.append(stream(x, y, y + 10, 1))
        y += 10
    return "".join(out), y, {}


def _run(band: Band, run: Run, plan: Plan, foldable: bool) -> tuple[str, int, dict[int, int], str]:
    x, out, heads, y = plan.tracks[band.track], [], [], 0
    ends: dict[int, int] = {}
    group = run.count > 1 and len(run.views) > 1
    if group:
        said = f"{TIMES}{run.count}"
        heads.append(_tag(x + 18, 10, said) + text(x + 42 + width(said, 11), 23, f"these {len(run.views)} blocks in turn", "sw-quiet"))
        y = 30
    for label, view in zip(run.labels, run.views, strict=True):
        times = f"{TIMES}{run.count}" if run.count > 1 and not group else ""
        body, height, found = _block(band, view, bool(times), plan)
        head = _head(band, view, times, f"{label or '(model)'}{' (one module)' if run.one_module else ''}", plan, foldable)
        out.append(_moved(body, y))
        heads.append(_moved(head, y))
        ends.update({track: at + y for track, at in found.items()})
        y += height
    if group:
        frame = rect("sw-frame sw-group", x - HALF - 5.5, 4.5, plan.right + HALF + 11, y - 2, 14)
        out = [frame, stream(x, 0, 30, band.lanes), stream(x, y, y + 6, band.lanes), *out]
        y += 6
    return "".join(out), y, ends, "".join(heads)


def _moved(body: str, y: int) -> str:
    return f'<g transform="translate(0 {y})">{body}</g>' if y else body


def _tag(x: float, y: float, said: str) -> str:
    wide = width(said, 11) + 14
    return rect("sw-tag", x, y, wide, 18, 9) + text(x + wide / 2, y + 12.5, said, "sw-tag-text")


def _block(band: Band, view: View, folded: bool, plan: Plan) -> tuple[str, int, dict[int, int]]:
    """One frame with its rows."""
    x, left = plan.tracks[band.track], plan.tracks[band.track] - HALF + 0.5
    shapes = [rows.shape(r) for r in view.rows]
    height = SPACE + HEADER + sum(s.height for s in shapes) + FOOT
    wide = plan.right + HALF - 1
    out = [rect("sw-frame", left + 4 * k, SPACE / 2 + 4 * k + 0.5, wide, height - SPACE, 10) for k in ((2, 1, 0) if folded else (0,))]
    whole = height + (8 if folded else 0)
    feeds, ends = _feeds(band, view, shapes, plan)
    out.append(feeds)
    halo = bool(band.feeds) and any(plan.tracks[t] < x for _, t in band.feeds if t >= 0)
    out.append(stream(x, 0, whole, band.lanes, halo))
    y = SPACE // 2 + HEADER
    earlier: list[int] = []
    for row, shape in zip(view.rows, shapes, strict=True):
        out.append(f'<g transform="translate({x} {y})">{rows.draw(row, plan, tuple(e - y for e in earlier))}</g>')
        if not row.standing:
            earlier.append(y + shape.reads[0])
        y += shape.height
    return "".join(out), whole, ends


def _head(band: Band, view: View, times: str, label: str, plan: Plan, foldable: bool) -> str:
    """The count and the path of a block, in the upper part of its frame."""
    x, out = plan.tracks[band.track], []
    at = x + 18.0
    if times:
        out.append(_tag(at, SPACE / 2 + 9, times))
        at += width(times, 11) + 24
    if foldable and times:
        out.append(path("sw-branch sw-open", f"M{num(x + plan.right - 24)} {SPACE // 2 + 15}l5 5l5-5"))
    room = x + plan.right - at - 12 - (BADGE + 8 if view.badges else 0) - (16 if foldable else 0)
    shown = fitted(label, 10.5, room, True)
    named = text(at, SPACE / 2 + 22, shown, "sw-mono")
    out.append(titled(label, named) if shown != label else named)
    out.append(badges(view.badges, x + plan.badge, SPACE / 2 + 18, 1))
    return "".join(out)


def _feeds(band: Band, view: View, shapes: list[rows.Shape], plan: Plan) -> tuple[str, dict[int, int]]:
    """Arrows from memories into the boxes that read them; where a memory ends, its line turns into the last of them."""
    x, tracks = plan.tracks[band.track], dict(band.feeds)
    levels: dict[int, list[int]] = {}
    joins: set[int] = set()
    y = SPACE // 2 + HEADER
    for row, shape in zip(view.rows, shapes, strict=True):
        for name, at in shape.feeds:
            if tracks.get(name, -1) >= 0:
                levels.setdefault(tracks[name], []).append(y + at)
                joins |= {y + at} if name == row.carried else set()
        y += shape.height
    out = []
    for track, found in levels.items():
        start = plan.tracks[track]
        over = any(r.track == track and r.ends for r in band.rails)
        for level in found:
            turns = over and level == found[-1]
            first = f"M{start} {level - 8}Q{start} {level} {start + 8} {level}" if turns else f"M{start} {level}"
            if level in joins:
                out.append(path("sw-stream sw-skip", f"{first}H{x - 8}"))
            else:
                out.append(path("sw-stream sw-memory", f"{first}H{x + plan.box - 3}") + tip(x + plan.box, level, "right"))
            out.append("" if turns else tap(start, level, 1))
    return "".join(out), {track: found[-1] for track, found in levels.items()}
