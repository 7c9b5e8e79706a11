"""The figures of a comparison as plain values, for the page and for files: one file says what is drawn, others how."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from skipway.report._compare import _series
from skipway.report._compare._series import Value
from skipway.report._escape import plain

POINTS = 240            # places of a line; more than a picture of this size can show
WIDE = 15.0             # largest over lowest value from which an axis of losses is logarithmic


@dataclass(frozen=True)
class Line:
    """What one arm adds to a figure. number: of the arm in the study, which gives its colour. crosses: places where seeds diverged."""

    number: int
    name: str
    values: tuple[Value, ...]
    crosses: tuple[float, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A figure. kind: "line" joins the values of an arm, "dots" lets each stand alone, "forest" puts each arm on a row of its own, from 0."""

    id: str
    section: str
    title: str
    said: str
    x_name: str
    y_name: str
    lines: tuple[Line, ...]
    kind: str = "line"
    x_log: bool = False
    y_log: bool = False


def figures(record: dict[str, Any]) -> list[Figure]:
    """All figures that the record has numbers for; a study with several groups has each of them group by group."""
    groups: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for number, arm in enumerate(record["arms"]):
        groups.setdefault(arm["group"], []).append((number, arm))
    trials, out = _series.best(record), []
    for place, (name, members) in enumerate(groups.items()):
        after, of = (f"-{place + 1}", f" ({plain(name, 60)})") if len(groups) > 1 else ("", "")
        made = [*_forest(record, members), *_curves(members, trials), *_rates(record, members), *_depth(members, trials), *_cost(record, members)]
        out += [Figure(f.id + after, f.section, f.title + of, *list(vars(f).values())[3:]) for f in made if f.lines]
    return out + _by_depth(record)


def _forest(record: dict[str, Any], members: Sequence[tuple[int, dict[str, Any]]]) -> Iterable[Figure]:
    numbers = {arm["name"]: number for number, arm in members}
    rows = []
    for c in record["comparisons"]:
        d = c["difference"]
        if c["variant"] in numbers and d is not None and d["low"] is not None:
            rows.append(Line(numbers[c["variant"]], c["variant"], (Value(d["mean"], d["mean"], d["low"], d["high"], d["n"]),)))
    yield Figure("differences", "verdicts", "Differences from the baseline",
                 "mean paired difference of the held-out loss with its t interval; left of 0 is better", "difference", "", tuple(rows), "forest")


def _curves(members: Sequence[tuple[int, dict[str, Any]]], trials: dict[str, list[dict[str, Any]]]) -> Iterable[Figure]:
    for split, title in (("held_out", "Held-out loss"), ("train", "Training loss")):
        lines = []
        for number, arm in members:
            values = _series.curve(trials[arm["name"]], split)
            lines.append(Line(number, arm["name"], tuple(_series.thinned(values, POINTS)), tuple(_series.diverged(trials[arm["name"]]))))
        said = "mean over seeds at the best learning rate; the band spans all seeds, a cross is a seed that diverged"
        yield Figure(split, "curves", title, said, "step", "loss", _some(lines), y_log=_wide(lines))


def _rates(record: dict[str, Any], members: Sequence[tuple[int, dict[str, Any]]]) -> Iterable[Figure]:
    lines = []
    for number, arm in members:
        rows = [r for r in record["rates"] if r["arm"] == arm["name"]]
        values = [_interval(r["lr"], r["loss"]) for r in rows if r["loss"]]
        lines.append(Line(number, arm["name"], tuple(values), tuple(r["lr"] for r in rows if r["diverged"])))
    if len({r["lr"] for r in record["rates"]}) > 1:
        said = "mean with its interval, which may leave the picture; a cross is a rate at which seeds diverged"
        yield Figure("rates", "rates", "Held-out loss by learning rate", said, "learning rate", "loss", _some(lines), x_log=True, y_log=_wide(lines))


def _depth(members: Sequence[tuple[int, dict[str, Any]]], trials: dict[str, list[dict[str, Any]]]) -> Iterable[Figure]:
    for key, title, said in (("gradient", "Gradient", "root mean square of the loss's gradient on the stream after each sublayer"),
                             ("stream", "Stream", "root mean square of the stream after each sublayer"),
                             ("ratio", "Write ratio", "what a branch writes over the stream that it joins")):
        for last, when in ((False, "at the start"), (True, "at the end")):
            lines = [Line(n, arm["name"], tuple(_series.thinned(_series.probed(trials[arm["name"]], last, key), POINTS))) for n, arm in members]
            yield Figure(f"{key}-{'last' if last else 'first'}", "depth", f"{title} {when}", said, "sublayer",
                         "ratio" if key == "ratio" else "root mean square", _some(lines), y_log=True)


def _cost(record: dict[str, Any], members: Sequence[tuple[int, dict[str, Any]]]) -> Iterable[Figure]:
    rows = {s["arm"]: s for s in record["summary"]}
    for key, title, name in (("seconds", "Loss against training time", "seconds of a trial"),
                             ("flops", "Loss against operations", "FLOPs of a trial")):
        lines = []
        for number, arm in members:
            s = rows[arm["name"]]
            x = s["seconds"] if key == "seconds" else arm["flops"] * arm["steps"]
            if s["loss"] and x:
                lines.append(Line(number, arm["name"], (_interval(x, s["loss"]),)))
        spread = [v.x for line in lines for v in line.values]
        log = bool(spread) and max(spread) > WIDE * min(spread)
        said = "each variant at its best learning rate; the bar is the interval of the mean, which may leave the picture"
        yield Figure(f"cost-{key}", "cost", title, said, name, "loss", tuple(lines), "dots", x_log=log, y_log=_wide(lines))


def _by_depth(record: dict[str, Any]) -> list[Figure]:
    """Loss by depth: a line for arms whose names differ in depth alone."""
    rows: list[dict[str, Any]] = next((a["rows"] for a in record["answers"] if a["claim"] == "depth"), [])
    found: dict[str, tuple[int, list[Value]]] = {}
    for number, r in enumerate(rows):
        values = found.setdefault(r["arm"].replace(f" depth={r['depth']}", ""), (number, []))[1]       # in the colour of its first arm
        if r["loss"] is not None:
            values.append(Value(r["depth"], r["loss"], r["loss"], r["loss"], r["seeds"]))
    lines = [Line(number, name, tuple(sorted(values, key=lambda v: v.x))) for name, (number, values) in found.items() if len(values) > 1]
    made = Figure("by-depth", "curves", "Held-out loss by depth", "mean over seeds at the best learning rate; a line a variant", "blocks", "loss",
                  _some(lines), y_log=_wide(lines))
    return [made] if made.lines else []


def _interval(x: float, loss: dict[str, Any]) -> Value:
    mean = loss["mean"]
    return Value(x, mean, mean if loss["low"] is None else loss["low"], mean if loss["high"] is None else loss["high"], loss["n"])


def _some(lines: Iterable[Line]) -> tuple[Line, ...]:
    return tuple(line for line in lines if line.values or line.crosses)


def _wide(lines: Iterable[Line]) -> bool:
    found = [v.mid for line in lines for v in line.values if v.mid > 0]
    return bool(found) and max(found) > WIDE * min(found)
