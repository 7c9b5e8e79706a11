"""The table as one picture: a panel a quantity over depth, with what a person wants first on top. Needs matplotlib."""

import io
import math
from collections.abc import Sequence
from typing import Any

from skipway._errors import UsageError
from skipway.report._drawing.style import COLORS
from skipway.report._escape import plain
from skipway.report._groups import count
from skipway.report._probe._axes import axis
from skipway.report._probe._chart import KINDS, kind_of
from skipway.report._probe._looks import heading, lines, looks
from skipway.report._probe._quantities import Quantity, measured, number

BINARY = True
COLORED = {"self_attention": "attention", "cross_attention": "cross"}
INK, SOFT, GRID, SECOND = "#1c2026", "#5a626e", "#e3e4e0", "#b06a00"
ACROSS, WIDE, HIGH = 3, 5.0, 2.5            # panels in a row, inches of each
DPI = 110
LONGEST = 150                   # characters of a line on top


def ready() -> None:
    """Raises UsageError where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UsageError("--format png: it needs the package matplotlib; pip install 'skipway[plot]', or take --format html") from error


def render(table: dict[str, Any], *, color: bool = False, width: int = 100) -> bytes:
    """The bytes of a PNG file. Colour and width do not apply. Raises UsageError where matplotlib is missing."""
    ready()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    rows = table["rows"]
    quantities = measured(rows)
    said = _said(table)
    down = max(1, math.ceil(len(quantities) / ACROSS))
    top = 0.55 + 0.2 * len(said)
    high = down * HIGH + top
    figure = Figure(figsize=(ACROSS * WIDE, high), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    title = f"{plain(table['model'] or 'model', 60)}   {count(table['parameters'])} parameters"
    _write(figure, 0.15, high - 0.2, title, high, size=15, weight="bold", color=INK)
    for index, line in enumerate(said):
        _write(figure, 0.15, high - 0.55 - 0.2 * index, line, high, size=9, color=SOFT)
    _kinds(figure, rows)
    x, borders = _places(rows)
    for index, quantity in enumerate(quantities):
        left, bottom = index % ACROSS * WIDE, high - top - (index // ACROSS + 1) * HIGH
        axes = figure.add_axes(((left + 0.65) / (ACROSS * WIDE), (bottom + 0.42) / high, (WIDE - 0.85) / (ACROSS * WIDE), (HIGH - 0.95) / high))
        _panel(axes, rows, x, borders, quantity)
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def _write(figure: Any, x: float, y: float, said: str, high: float, **options: Any) -> None:
    figure.text(x / (ACROSS * WIDE), y / high, said, va="top", ha="left", parse_math=False, **options)


def _said(table: dict[str, Any]) -> list[str]:
    out = [plain(table["target"], LONGEST)] if table.get("target") else []
    out.append(plain(f"{heading(table)}; {table['dtype']}, {'train' if table['training'] else 'eval'} mode", LONGEST))
    for summary in table["summary"][:6]:
        named = f"stream {plain(summary['stream'], 40)}: " if len(table["summary"]) > 1 else ""
        out.append(named + "; ".join(f"{name} {sentence}" for name, sentence in lines(summary)[:3]))
        out += [plain(f"look at {sites}: {reason}", LONGEST) for sites, reason in looks(summary)[:3]]
    return out


def _places(rows: Sequence[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Where each site stands, and the borders between streams."""
    x: list[float] = []
    borders: list[float] = []
    for position, row in enumerate(rows):
        new = position > 0 and row["stream"] != rows[position - 1]["stream"]
        at = x[-1] + (2.5 if new else 1.0) if x else 0.0
        if new:
            borders.append(at - 1.25)
        x.append(at)
    return x, borders


def _panel(axes: Any, rows: Sequence[dict[str, Any]], x: Sequence[float], borders: Sequence[float], quantity: Quantity) -> None:
    from matplotlib.ticker import NullLocator
    colors = [COLORS[COLORED.get(kind_of(row), kind_of(row))][0] for row in rows]
    axes.set_title(quantity.title, loc="left", fontsize=10.5, fontweight="bold", color=INK, pad=14)
    axes.text(0, 1.03, quantity.said, transform=axes.transAxes, fontsize=7.5, color=SOFT, parse_math=False)
    if quantity.log:
        axes.set_yscale("log", nonpositive="mask")
    for index, key in enumerate(quantity.keys):
        values = [number(row.get(key)) for row in rows]
        y = [v if v is not None and math.isfinite(v) and (v > 0 or not quantity.log) else math.nan for v in values]
        if quantity.bars:
            axes.bar(x, y, color=colors, width=0.75)
        else:
            for start, end in _stretches(rows):
                label = quantity.names[index] if quantity.names and not start else None
                axes.plot(x[start:end], y[start:end], color=(INK, SECOND)[index % 2], linestyle=("-", "--")[index % 2], linewidth=1.2, zorder=2,
                          label=label)
            if index == 0:
                axes.scatter(x, y, c=colors, s=14, zorder=3)
        for place, value in zip(x, values, strict=True):
            if value is not None and not math.isfinite(value):
                axes.plot([place], [0.97], marker="x", color="#b3261e", transform=axes.get_xaxis_transform(), clip_on=False)
    if quantity.bars:
        axes.axhline(0, color=SOFT, linewidth=0.8)
    if quantity.names:
        axes.legend(fontsize=7, frameon=False, loc="best")
    scale = axis([number(row.get(key)) for row in rows for key in quantity.keys], quantity.log)
    axes.set_yticks([v for v, _ in scale.ticks], [name for _, name in scale.ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(scale.low, scale.high)
    for border in borders:
        axes.axvline(border, color=SOFT, linewidth=0.8, linestyle=":")
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=7.5, colors=SOFT)
    step = max(1, math.ceil(len(rows) / 12))
    axes.set_xticks(x[::step], [str(row["index"]) for row in rows[::step]])
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRID)


def _stretches(rows: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    """The first row of each stream and the one after its last."""
    starts = [i for i, row in enumerate(rows) if i == 0 or row["stream"] != rows[i - 1]["stream"]]
    return list(zip(starts, [*starts[1:], len(rows)], strict=True))


def _kinds(figure: Any, rows: Sequence[dict[str, Any]]) -> None:
    """The colours of the branches, in the corner."""
    from matplotlib.patches import Patch
    found = [kind for kind in KINDS if any(kind_of(row) == kind for row in rows)]
    figure.legend([Patch(color=COLORS[COLORED.get(kind, kind)][0]) for kind in found], [kind.replace("_", " ") for kind in found], fontsize=8,
                  frameon=False, loc="upper right", ncols=len(found))
