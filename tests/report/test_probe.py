"""The formats of a probe's table: what they say, how wide they are, and that nobody's name gets out of them."""

import csv
import html.parser
import io
import json
import math
import pathlib
import re
from typing import Any

import jsonschema
import pytest

from skipway._errors import UsageError
from skipway.probing.table import Table
from skipway.report import _probe
from skipway.report._page import digest
from skipway.report._probe import _axes, _chart, _looks
from skipway.report._probe._load import table_of
from skipway.report._probe._quantities import QUANTITIES, measured, runs, text

from . import tables

SCHEMA = json.loads((pathlib.Path(__file__).parents[2] / "docs" / "schema" / "probe.schema.json").read_text(encoding="utf-8"))
ALL = {"plain": tables.table, "with_loss": tables.with_loss, "broken": tables.broken, "two_streams": tables.two_streams,
       "parallel": tables.parallel, "hostile": tables.hostile}


def rendered(table: dict[str, Any], form: str, **options: Any) -> str:
    made = _probe.render(table, form, **options)
    assert isinstance(made, str)
    return made


def test_formats_are_found() -> None:
    assert _probe.formats() == ("csv", "html", "json", "png", "text")
    with pytest.raises(UsageError, match="--format: got 'xml', want one of csv, html, json, png, text"):
        _probe.render(tables.table(), "xml")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("width", [60, 100, 140])
def test_text_fits_and_colour_changes_no_character(name: str, width: int) -> None:
    bare, colored = (rendered(ALL[name](), "text", width=width, color=color) for color in (False, True))
    assert max(map(len, bare.splitlines())) <= width
    assert re.sub(r"\x1b\[\d+m", "", colored) == bare and "\x1b[" not in bare and (name == "hostile" or "\x1b[" in colored)


def test_text_says_first_what_a_person_wants_first() -> None:
    lines = rendered(tables.with_loss(), "text").splitlines()
    assert lines[:11] == [
        "Net  1.23 K parameters  float32  eval  [net.py:Net]",
        "inputs random, seed 0; random weights, seed 0; loss 2.500 (next-token)", "",
        "stream net  4 sites",
        "  growth          ×5.00 over 4 sites; magnitude ~ site^0.657 (R² 1.00)",
        "  gradient        steady: 2.00 times as large after the first block as after the last",
        "  effective depth 3 of 4 sites carry 90 % of the influence",
        "  lesion          rank correlation with influence -1.0",
        "  dead branches   none", "",
        "#  module        branch     stream  ratio           influence           lesion           gradient"]
    assert lines[11] == "0  net.layers.0  attention    2.00  0.500 ████████     0.0100 ██         0.200 ████████   0.00100"
    assert lines[13] == "2  net.layers.1  attention    4.00  0.167 ███████      0.0300 ██████         0             3.3e-4"


def test_text_leaves_columns_out_where_there_is_no_room() -> None:
    head = rendered(tables.with_loss(), "text", width=70).splitlines()[-7]
    assert head.split() == ["#", "module", "branch", "stream", "ratio", "influence"]


def test_looks_are_folded() -> None:
    seven = [[i, f"channel 7 holds {i}, {100 + i} times the stream's magnitude"] for i in (1, 2, 3, 9)]
    summary = {"look": [*seven, [4, "channel 8 holds 5, 200 times the stream's magnitude"], [5, "the branch writes 1e-05 of the stream"],
                        [6, "the branch writes 2e-05 of the stream"]]}
    assert _looks.looks(summary) == [("sites 1-3, 9", "channel 7 holds 9, 109 times the stream's magnitude (site 9)"),
                                     ("site 4", "channel 8 holds 5, 200 times the stream's magnitude"),
                                     ("sites 5-6", "the branch writes 2e-05 of the stream (site 6)")]


@pytest.mark.parametrize(("value", "wanted"), [
    (0.0, "0"), (0.12345, "0.123"), (1.0, "1.00"), (123.456, "123"), (99999.4, "99999"), (123456.0, "1.2e5"), (0.00012, "1.2e-4"), (-0.5, "-0.500"),
    ("nan", "nan"), (math.inf, "inf"), ("-inf", "-inf"), (None, ""), (1e-12, "1.0e-12"), (3, "3.00"), ("none", "")])
def test_numbers(value: Any, wanted: str) -> None:
    assert text(value) == wanted


def test_runs() -> None:
    assert runs([5, 1, 2, 3, 9]) == "1-3, 5, 9" and runs([]) == ""


@pytest.mark.parametrize(("values", "log", "low", "high", "ticks"), [
    ([0.5, 2.0], False, 0.0, 2.0, ["0", "0.5", "1", "1.5", "2"]), ([-0.3, 1.0], False, -0.5, 1.0, ["-0.5", "0", "0.5", "1"]),
    ([0.0, 0.0], False, 0.0, 1.0, ["0", "0.25", "0.5", "0.75", "1"]), ([1e-3, 50.0], True, 1e-3, 100.0, ["0.001", "0.01", "0.1", "1", "10", "100"]),
    ([1e-9, 1e9], True, 1e-9, 1e9, ["1e-9", "1e-5", "0.1", "1000", "1e7"]), ([math.nan, None, 0.0, -1.0], True, None, None, None)])
def test_axes(values: list[Any], log: bool, low: float | None, high: float | None, ticks: list[str] | None) -> None:
    made = _axes.axis(values, log)
    if low is not None and high is not None:
        assert (made.low, made.high) == (pytest.approx(low), pytest.approx(high)) and [name for _, name in made.ticks] == ticks
        assert made.at(low) == pytest.approx(0) and made.at(high) == pytest.approx(1)
    assert made.at(math.nan) is None and made.at(math.inf) is None and (made.at(0.0) is None) == log


def test_a_chart_stands_where_its_numbers_are() -> None:
    rows = tables.with_loss()["rows"]
    quantity = next(q for q in QUANTITIES if q.id == "lesion")
    made = _chart.chart(rows, quantity)
    drawn = "".join(re.findall(r'class="bar k-\w+"[^>]* d="([^"]*)"', made.svg))
    bars = {float(x): float(y) for x, _, y in re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)", drawn)}
    zero = float(re.findall(r'class="zero" d="M[\d.]+ ([\d.]+)H', made.svg)[0])
    heights = [zero - bars.get(x, zero) for x in _chart.places(rows)[0]]
    assert heights[2] == 0 and heights[0] == pytest.approx(2 * heights[1], abs=0.1) and heights[3] == pytest.approx(-heights[1], abs=0.1)
    assert made.values == ("0.200", "0.100", "0", "-0.100")


def test_streams_stand_apart_and_lanes_have_charts() -> None:
    rows = tables.two_streams()["rows"]
    x, spans = _chart.places(rows)
    assert [span.name for span in spans] == ["encoder", "decoder"] and x[3] - x[2] > 2 * (x[1] - x[0])
    page = rendered(tables.two_streams(), "html")
    assert 'id="chart-lane-use"' in page and "lane 0 0.250, lane 1 0.750" in page and 'id="chart-lane-gain"' in page
    assert "second 0.500" in rendered(tables.two_streams(), "text")


def test_each_of_several_branches_has_its_own_lesion() -> None:
    said = rendered(tables.parallel(), "text")
    assert "lesions of single branches\n   0  self_attention 0.125  ffn 0.250\n" in said and "attention+ffn" in said
    assert "<td>self_attention 0.125, ffn 0.250</td>" in rendered(tables.parallel(), "html")


def test_only_what_says_something_is_drawn() -> None:
    assert [q.id for q in measured(tables.table()["rows"])] == ["magnitude", "ratio", "influence", "angle", "cosine", "largest", "rank"]
    assert {"gradient", "lesion", "identity"} <= {q.id for q in measured(tables.with_loss()["rows"])}
    assert "nonfinite" in {q.id for q in measured(tables.broken()["rows"])}


@pytest.mark.parametrize("name", [n for n in ALL if n != "hostile"])
def test_json_meets_the_schema_and_comes_back(name: str) -> None:
    given = json.loads(rendered(ALL[name](), "json"))
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert [e.message for e in jsonschema.Draft202012Validator(SCHEMA).iter_errors(given)] == []
    assert set(given) == set(SCHEMA["properties"]) and set(given["rows"][0]) == set(SCHEMA["$defs"]["Row"]["properties"])
    assert table_of(given, "x") == given
    assert repr(Table.from_dict(given)) == repr(Table.from_dict(ALL[name]()))


@pytest.mark.parametrize(("path", "value"), [("rows.0.after", "much"), ("rows.0.index", "0"), ("summary.0.look", [["x", 1]]), ("training", 0)])
def test_the_schema_refuses_what_is_spoiled(path: str, value: Any) -> None:
    given = json.loads(rendered(tables.table(), "json"))
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    at: Any = given
    for part in way:
        at = at[part]
    at[last] = value
    assert list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(given))


def test_csv() -> None:
    read = list(csv.DictReader(io.StringIO(rendered(tables.with_loss(), "csv"))))
    assert [float(r["lesion"]) for r in read] == pytest.approx([0.2, 0.1, 0, -0.1]) and read[0]["weights"] == "random, seed 0"
    wild = list(csv.DictReader(io.StringIO(rendered(tables.hostile(), "csv"))))
    assert any(r["module"] == "'=HYPERLINK(1)" for r in wild)


class Page(html.parser.HTMLParser):
    """Elements, attributes and texts of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.said.append(data)


@pytest.mark.parametrize("name", ALL)
def test_the_page_loads_nothing_and_holds_what_was_measured(name: str) -> None:
    source = rendered(ALL[name](), "html")
    page = Page(source)
    assert not [t for t, a in page.tags if t in ("link", "img", "iframe", "object", "embed", "form", "base") or "src" in a or "style" in a]
    assert not [a for _, a in page.tags for key in a if key.startswith("on")] and source.count("<script>") == 1 == source.count("<style>")
    assert [a["href"] for t, a in page.tags if t == "a" and not str(a.get("href")).startswith("#")] == []
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    for tag in ("style", "script"):
        assert digest(re.findall(rf"<{tag}>(.*?)</{tag}>", source, re.S)[0]) in str(policy)
    ids = [a["id"] for _, a in page.tags if a.get("id")]
    assert len(ids) == len(set(ids))
    assert len(source) < 1_000_000


@pytest.mark.parametrize("name", [n for n in ALL if n != "hostile"])
def test_the_page_has_a_chart_a_quantity_and_a_reading_a_site(name: str) -> None:
    table = ALL[name]()
    page = Page(rendered(table, "html"))
    figures = [a for t, a in page.tags if t == "figure"]
    wanted = [f"chart-{q.id}" for q in measured(table["rows"])]
    assert [a["id"] for a in figures][:len(wanted)] == wanted
    assert all(str(a["data-values"]).count("\n") == len(table["rows"]) - 1 for a in figures)
    influence = next(str(a["data-values"]) for a in figures if a["id"] == "chart-influence").split("\n")
    assert influence == [text(r["influence"]) for r in table["rows"]]
    holder = next(a for t, a in page.tags if a.get("id") == "charts-all")
    assert len(str(holder["data-x"]).split()) == len(table["rows"]) == len(str(holder["data-names"]).split("\n"))
    assert any(t == "svg" and "sw-drawing" in str(a.get("class")) for t, a in page.tags)


def test_names_stay_text() -> None:
    source = rendered(tables.hostile(), "html")
    assert "<script>window" not in source and "<img" not in source and "\u202e" not in source and "{{ 7" in source.replace("&#123;", "{")
    for form in ("text", "csv"):
        said = rendered(tables.hostile(), form)
        assert form == "csv" or not set(said) & set("\u202e\u2066\x1b\x00")


def test_what_is_not_finite_is_an_error_at_the_top() -> None:
    assert _looks.verdict(tables.broken()) == ("error", "Not finite", "at 2 of 4 sites; --find-nonfinite names what makes it")
    assert _looks.verdict(tables.with_loss())[:2] == ("fine", "Gradient steady")
    source = rendered(tables.broken(), "html")
    assert 'class="broken"' in source and "Not finite" in source


@pytest.mark.parametrize("name", ALL)
def test_png(name: str) -> None:
    pytest.importorskip("matplotlib")
    made = _probe.render(ALL[name](), "png")
    assert isinstance(made, bytes) and made[:8] == b"\x89PNG\r\n\x1a\n" and made == _probe.render(ALL[name](), "png")


def test_the_largest_page() -> None:
    rows = tuple(tables.row(i) for i in range(2000))
    source = rendered(tables.table(*rows), "html")
    assert len(source) < 3_000_000 and "500 more sites are not on this page" in source
