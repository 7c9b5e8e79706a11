"""Every figure of a comparison as PNG and SVG files, by matplotlib (extra `plot`)."""

import importlib.util
import io
import math
from collections.abc import Iterator
from typing import Any

from skipway.report._compare._colors import color, dash
from skipway.report._compare._figures import Figure, Line, figures
from skipway.report._compare._svg import TRIED, x_axis, y_axis
from skipway.report._escape import plain

FORMATS = ("png", "svg")
INK, SOFT, GRID = "#1c2026", "#5a626e", "#e3e4e0"
WIDE, HIGH, DPI = 6.4, 4.0, 150         # inches, dots an inch
NAMES = 14                      # names in a column of the legend


def ready() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def render(record: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """(file name, bytes) of each figure in each format. The same record gives the same bytes. Raises ImportError where matplotlib is missing."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas
    for one in figures(record):
        high = max(1.4, 0.3 * len(one.lines) + 1.2) if one.kind == "forest" else HIGH
        legend = one.kind != "forest"
        canvas = Canvas(figsize=(WIDE + 2.2 * legend, high), dpi=DPI, facecolor="white", layout="constrained")
        FigureCanvasAgg(canvas)
        _drawn(canvas, one, legend)
        for form in FORMATS:
            out = io.BytesIO()
            with matplotlib.rc_context({"svg.hashsalt": "skipway", "svg.fonttype": "path"}):
                canvas.savefig(out, format=form, metadata={"Software": None} if form == "png" else {"Date": None, "Creator": None})
            yield f"{one.id}.{form}", out.getvalue()


def _drawn(canvas: Any, figure: Figure, legend: bool) -> None:
    axes = canvas.add_subplot()
    axes.set_title(plain(figure.title, 90), loc="left", fontsize=11, fontweight="bold", color=INK, parse_math=False)
    if figure.kind == "forest":
        _forest(axes, figure)
    else:
        for line in reversed(figure.lines):
            _line(axes, figure, line)
        _scales(axes, figure)
    axes.set_xlabel(plain(figure.x_name, 60), fontsize=9, color=SOFT, parse_math=False)
    axes.set_ylabel(plain(figure.y_name, 60), fontsize=9, color=SOFT, parse_math=False)
    axes.grid(axis="x" if figure.kind == "forest" else "y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8.5, colors=SOFT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRID)
    if legend:
        handles = [axes.plot([], [], **_ink(line))[0] for line in figure.lines]
        made = canvas.legend(handles, [plain(line.name, 40) for line in figure.lines], loc="outside right upper", fontsize=8, frameon=False,
                             ncols=math.ceil(len(figure.lines) / NAMES))
        for said in made.get_texts():
            said.set_parse_math(False)


def _ink(line: Line) -> dict[str, Any]:
    found = dash(line.number)
    return {"color": color(line.number)[0], "linewidth": 1.5, "linestyle": (0, found) if found else "-"}


def _line(axes: Any, figure: Figure, line: Line) -> None:
    own = color(line.number)[0]
    x, y = [v.x for v in line.values], [v.mid for v in line.values]
    low, high = [v.low for v in line.values], [v.high for v in line.values]
    if figure.kind == "dots" or figure.section == "rates":
        axes.vlines(x, low, high, color=own, linewidth=1.1)
    else:
        axes.fill_between(x, low, high, color=own, alpha=0.1, linewidth=0)
    if figure.kind == "line":
        axes.plot(x, y, marker="o" if len(x) <= 30 else None, markersize=2.5, **_ink(line))
    else:
        axes.plot(x, y, "o", color=own, markersize=5)
    axes.plot(line.crosses, [0.97] * len(line.crosses), "x", color=own, transform=axes.get_xaxis_transform(), clip_on=False)


def _scales(axes: Any, figure: Figure) -> None:
    """The axes of the page."""
    from matplotlib.ticker import NullLocator
    x, y = x_axis(figure), y_axis(figure)
    axes.set_yscale("log" if y.log else "linear")
    axes.set_ylim(y.low, y.high)
    axes.set_yticks([v for v, _ in y.ticks if y.low <= v <= y.high], [name for v, name in y.ticks if y.low <= v <= y.high])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xscale("log" if x.log else "linear")
    if figure.kind == "dots" or (x.log and len(x.ticks) <= TRIED):
        axes.set_xlim(x.low, x.high)
        axes.set_xticks([v for v, _ in x.ticks], [name for _, name in x.ticks])
        axes.xaxis.set_minor_locator(NullLocator())


def _forest(axes: Any, figure: Figure) -> None:
    axes.axvline(0, color=SOFT, linewidth=0.9)
    for row, line in enumerate(figure.lines):
        v, own = line.values[0], color(line.number)[0]
        axes.hlines(row, v.low, v.high, color=own, linewidth=1.5)
        axes.plot([v.mid], [row], "o", color=own, markersize=5)
    axes.set_yticks(range(len(figure.lines)), [plain(line.name, 40) for line in figure.lines])
    for said in axes.get_yticklabels():
        said.set_parse_math(False)
    axes.set_ylim(len(figure.lines) - 0.5, -0.5)
