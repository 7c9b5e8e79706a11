"""The table for a terminal: what a person wants first, then one row a site with bars for what it writes and what it changes."""

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from skipway.report._escape import plain
from skipway.report._groups import count, plural
from skipway.report._paths import shown
from skipway.report._probe._looks import heading, lines, looks
from skipway.report._probe._quantities import SHORT, number, text

PAINT = {"bold": "1", "dim": "2", "error": "31", "warning": "33", "note": "36", "fine": "32", "attention": "36", "other": "35"}
BLOCKS = " ▏▎▍▌▋▊▉█"
TONES = {"exploding": "warning", "vanishing": "warning", "steady": "fine"}
LEAST, MOST = 60, 200           # characters of a line
KEPT = 5                        # columns of numbers that go only after bars and paths were cut short
LEAST_NAME = 10
DEAD = 1e-4                     # of the stream: a branch that writes less counts as dead


@dataclass(frozen=True)
class Column:
    """A column of numbers: its title, its values as text, and bars beside them where it has any."""

    title: str
    cells: tuple[str, ...]
    shares: tuple[float | None, ...] = ()       # 0 to 1, the length of each bar


def render(table: dict[str, Any], *, color: bool = False, width: int = 100) -> str:
    """The table as text; every line fits `width` columns. Colour adds escape sequences and changes no character."""
    width = min(max(width, LEAST), MOST)

    def paint(said: str, style: str) -> str:
        return f"\x1b[{PAINT[style]}m{said}\x1b[0m" if color and said.strip() else said

    out = _head(table, width, paint)
    for summary in table["summary"]:
        rows = [row for row in table["rows"] if row["stream"] == summary["stream"]]
        out += ["", *_summary(summary, width, paint), "", *_sites(rows, width, paint), *_single(rows, width), *_lanes(rows, width)]
    if table["notes"]:
        out.append("")
    for note in table["notes"]:
        first, *rest = _wrapped(f"note: {plain(' '.join(note.split()), 2000)}", "", "  ", width)
        out += [paint("note:", "note") + first.removeprefix("note:"), *rest]
    return "\n".join(out) + "\n"


def _head(table: dict[str, Any], width: int, paint: Callable[[str, str], str]) -> list[str]:
    name = plain(table["model"] or "model")
    target = f"  [{plain(table['target'])}]" if table.get("target") else ""
    mode = "train" if table["training"] else "eval"
    first, *rest = _wrapped(f"{name}  {count(table['parameters'])} parameters  {table['dtype']}  {mode}{target}", "", "  ", width)
    return [first.replace(name, paint(name, "bold"), 1), *rest, *_wrapped(plain(heading(table), 2000), "", "  ", width)]


def _summary(summary: dict[str, Any], width: int, paint: Callable[[str, str], str]) -> list[str]:
    out = [f"{paint('stream', 'bold')} {plain(summary['stream'], 40)}  {plural(summary['sites'], 'site')}".rstrip()]
    found = lines(summary)
    seen = looks(summary)
    named = [*found, *(("look at" if number == 0 else "", f"{sites}: {reason}") for number, (sites, reason) in enumerate(seen[:6]))]
    if len(seen) > 6:
        named.append(("", f"and {len(seen) - 6} more reasons; --format json has all"))
    for name, said in named:
        made = _wrapped(plain(said, 1000), f"  {name:<16}", " " * 18, width)
        tone = TONES.get(said.partition(":")[0]) if name == "gradient" else "warning" if name == "dead branches" and said != "none" else None
        if tone:
            word = said.partition(":")[0]
            made[0] = made[0].replace(word, paint(word, tone), 1)
        out += made
    return out


def _sites(rows: Sequence[dict[str, Any]], width: int, paint: Callable[[str, str], str]) -> list[str]:
    """The rows, as many columns as there is room for; then the bars are cut short, then the paths."""
    columns = _columns(rows)
    index = max([len(str(row["index"])) for row in rows] + [1])
    kinds = [plain("+".join(SHORT.get(k, k) for k in row["kind"].split("+")), 20) for row in rows]
    kind = max(map(len, kinds), default=0)
    names = [plain(shown(row["module"]), 400) for row in rows]
    sizes = [max([len(c.title), *map(len, c.cells)]) for c in columns]
    bars = [c for c in columns if c.shares]
    bar = 8

    def room(length: int) -> int:
        return width - (index + 2 + kind + 2 + sum(size + 2 for size in sizes) + len(bars) * (length + 1) + 2)
    wanted = max(map(len, names), default=0)
    while room(bar) < min(wanted, 24) and (len(columns) > KEPT or bar > 4):
        if len(columns) > KEPT:
            gone = columns.pop()
            sizes.pop()
            bars = [c for c in bars if c is not gone]
        else:
            bar -= 1
    while room(bar) < LEAST_NAME and len(columns) > 1:
        gone = columns.pop()
        sizes.pop()
        bars = [c for c in bars if c is not gone]
    name = max(min(wanted, room(bar)), 6)
    head = f"{'#':>{index}}  {'module':<{name}}  {'branch':<{kind}}" + "".join(
        f"  {c.title:>{size}}" + " " * (bar + 1) * bool(c.shares) for c, size in zip(columns, sizes, strict=True))
    out = [paint(head.rstrip(), "dim")]
    for at, row in enumerate(rows):
        tone = "attention" if "attention" in row["kind"] else "other"
        parts = [f"{row['index']:>{index}}  {_left(names[at], name):<{name}}  {paint(f'{kinds[at]:<{kind}}', tone)}"]
        for column, size in zip(columns, sizes, strict=True):
            cell = f"{column.cells[at]:>{size}}"
            parts.append(paint(cell, "error") if column.cells[at] in ("nan", "inf", "-inf") else cell)
            if column.shares:
                parts[-1] += " " + paint(_bar(column.shares[at], bar), tone)
        out.append("  ".join(parts).rstrip())
    return out


def _columns(rows: Sequence[dict[str, Any]]) -> list[Column]:
    """The columns that hold numbers, the ones that may be left out last."""
    def cells(key: str) -> tuple[str, ...]:
        return tuple(text(row.get(key)) for row in rows)

    def shares(key: str) -> tuple[float | None, ...]:
        values = [number(row.get(key)) for row in rows]
        top = max([abs(v) for v in values if v is not None and math.isfinite(v)], default=0.0)
        return tuple(None if v is None else 1.0 if not math.isfinite(v) else abs(v) / top if top else 0.0 for v in values)

    def decades(key: str) -> tuple[float | None, ...]:
        """On a logarithmic scale that starts where a branch counts as dead."""
        values = [number(row.get(key)) for row in rows]
        top = max([v for v in values if v is not None and math.isfinite(v)], default=0.0)
        span = math.log(max(top, 10 * DEAD) / DEAD)
        return tuple(None if v is None else 1.0 if not math.isfinite(v) else max(math.log(max(v, DEAD) / DEAD) / span, 0.0) for v in values)

    largest = tuple(f"{text(row.get('largest'))}@{row['channel']}" if number(row.get("largest")) is not None else "" for row in rows)
    found = [Column("stream", cells("after")), Column("ratio", cells("ratio"), decades("ratio")),
             Column("influence", cells("influence"), shares("influence")), Column("lesion", cells("lesion"), shares("lesion")),
             Column("gradient", cells("grad_stream")), Column("largest@ch", largest), Column("identity", cells("identity")),
             Column("rank", cells("rank")), Column("cosine", cells("cosine"))]
    return [c for c in found if any(c.cells)]


def _single(rows: Sequence[dict[str, Any]], width: int) -> list[str]:
    """One line a site whose branches are several: what the loss does without each of them alone."""
    held = [row for row in rows if row.get("lesions")]
    out = ["", "lesions of single branches"] if held else []
    for row in held:
        said = "  ".join(f"{plain(name, 60)} {text(change)}" for name, change in row["lesions"].items())
        out += _wrapped(said, f"{row['index']:>4}  ", " " * 6, width)
    return out


def _lanes(rows: Sequence[dict[str, Any]], width: int) -> list[str]:
    """One line a site for streams of several lanes: how the stream is spread over them, and what the mixers do to it."""
    held = [(row["index"], row["lanes"]) for row in rows if row.get("lanes")]
    if not held:
        return []
    out = ["", "lanes: share of the stream in each; largest row and column sum of the mixer, its second singular value, gain from start and to end"]
    out = [part for line in out for part in (_wrapped(line, "", "  ", width) if line else [""])]
    for index, lanes in held:
        use = " ".join(text(v, 2) for v in lanes.get("use", ()))
        mixer = "  ".join(f"{name} {text(value)}" for name, value in (
            ("rows", _top(lanes.get("row_sums"))), ("columns", _top(lanes.get("column_sums"))), ("second", lanes.get("second_singular_value")),
            ("from start", lanes.get("gain_from_start")), ("to end", lanes.get("gain_to_end"))) if number(value) is not None)
        out += _wrapped(f"{use}{'  ' if mixer else ''}{mixer}", f"{index:>4}  ", " " * 6, width)
    return out


def _top(values: Any) -> float | None:
    found = [v for v in map(number, values or ()) if v is not None]
    return max(found, key=abs) if found else None


def _bar(share: float | None, length: int) -> str:
    if share is None:
        return " " * length
    eighths = max(round(share * length * 8), 1 if share > 0 else 0)
    return (BLOCKS[8] * (eighths // 8) + (BLOCKS[eighths % 8] if eighths % 8 else "")).ljust(length)


def _left(name: str, room: int) -> str:
    """The end of a path, which is what tells blocks apart."""
    return name if len(name) <= room else "…" + name[len(name) - room + 1:]


def _wrapped(said: str, first: str, then: str, width: int) -> list[str]:
    return textwrap.wrap(said, width, initial_indent=first, subsequent_indent=then, break_on_hyphens=False) or [first.rstrip()]
