"""The report of a comparison: what its series, figures, tables and pages say, that nobody's name gets out of them, and how large they are."""

import html.parser
import re
import xml.etree.ElementTree as ET
from collections import Counter
from typing import Any

import pytest

from skipway._errors import UsageError
from skipway.report._compare import _series, _svg, _tables, pictures
from skipway.report._compare import html as page
from skipway.report._compare._colors import COLORS, DASHES, color, dash
from skipway.report._compare._figures import figures
from skipway.report._probe._axes import axis

from . import samples, studies

MADE = {"small": studies.small, "grouped": studies.grouped, "bare": studies.bare, "hostile": studies.hostile, "large": studies.large,
        "claimed": studies.claimed}


class Reader(html.parser.HTMLParser):
    """Every element's name and attributes, and the text in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name: page.render(make()) for name, make in MADE.items()}


def trial(seed: int, losses: "list[float | None]", state: str = "finished") -> dict[str, Any]:
    return {"arm": "a", "lr": 1e-3, "seed": seed, "state": state, "step": 10 * len(losses),
            "points": [{"split": "held_out", "step": 10 * i, "loss": v} for i, v in enumerate(losses)],
            "depths": [{"step": s, "index": i, "gradient": 10.0 ** (seed + i - s)} for s in (0, 5) for i in range(2)]}


def test_a_curve_is_the_mean_over_the_seeds_that_finished() -> None:
    rows = [trial(0, [3.0, 2.0, 1.0]), trial(1, [3.0, 1.0, 0.5]), trial(2, [3.0, 90.0], "diverged")]
    made = _series.curve(rows, "held_out")
    assert [(v.x, v.mid, v.low, v.high, v.seeds) for v in made] == [(0, 3.0, 3.0, 3.0, 2), (10, 1.5, 1.0, 2.0, 2), (20, 0.75, 0.5, 1.0, 2)]
    assert _series.diverged(rows) == [20]
    alone = _series.curve([rows[2], trial(3, [3.0, 50.0, None], "diverged")], "held_out")
    assert [(v.x, v.mid) for v in alone] == [(0, 3.0), (10, 70.0)], "where none finished: those that diverged, while all have a number"


def test_depth_is_a_geometric_mean_at_the_first_or_last_probe() -> None:
    rows = [trial(0, [1.0]), trial(2, [1.0])]
    assert [(v.x, v.mid) for v in _series.probed(rows, False, "gradient")] == [(0, pytest.approx(10.0)), (1, pytest.approx(100.0))]
    ends = [end for v in _series.probed(rows, True, "gradient") for end in (v.low, v.high)]
    assert ends == pytest.approx([1e-5, 1e-3, 1e-4, 1e-2])


def test_thinning_keeps_the_ends() -> None:
    values = [_series.Value(i, i, i, i, 1) for i in range(1000)]
    kept = _series.thinned(values, 7)
    assert [v.x for v in kept][::6] == [0, 999] and len(kept) == 7 and _series.thinned(values[:5], 7) == values[:5]


def test_an_axis_without_zero() -> None:
    assert axis([2.0, 2.2], False, zero=False).low == pytest.approx(2.0) and axis([2.0, 2.2], False).low == 0.0
    same = axis([5.0, 5.0], False, zero=False)
    assert same.low < 5.0 < same.high < 6.0 and (axis([], False, zero=False).low, axis([0.0], False).high) == (0.0, 1.0)


def test_which_figures_there_are() -> None:
    assert [f.id for f in figures(studies.small())] == [
        "differences", "held_out", "train", "rates", "gradient-first", "gradient-last", "stream-first", "stream-last", "ratio-first", "ratio-last",
        "cost-seconds", "cost-flops"]
    grouped = {f.id: f for f in figures(studies.grouped())}
    assert {"held_out-1", "held_out-2", "by-depth"} <= set(grouped) and "depth=12" in grouped["held_out-2"].title
    assert [line.name for line in grouped["held_out-2"].lines] == ["pre_norm depth=12", "none depth=12"]
    deep = [(line.name, line.number, [v.x for v in line.values]) for line in grouped["by-depth"].lines]
    assert deep == [("pre_norm", 0, [2, 12]), ("none", 1, [2, 12])]
    bare = {f.id for f in figures(studies.bare())}
    assert "rates" not in bare and "differences" not in bare and "held_out" in bare


def test_figures_hold_the_numbers_of_the_record() -> None:
    record = studies.small()
    made = {f.id: f for f in figures(record)}
    d = record["comparisons"][0]["difference"]
    value = made["differences"].lines[0].values[0]
    assert (value.mid, value.low, value.high) == (d["mean"], d["low"], d["high"])
    for line, summary in zip(made["held_out"].lines, record["summary"]):
        assert line.values[-1].mid == pytest.approx(summary["loss"]["mean"]) and line.values[-1].x == 500
    lost = made["rates"].lines[1]
    assert lost.crosses == (3e-3,) and [v.x for v in lost.values] == [3e-4, 1e-3, 3e-3]
    assert made["cost-flops"].lines[0].values[0].x == 500 * record["arms"][0]["flops"]


@pytest.mark.parametrize("name", MADE)
def test_every_picture_is_well_formed_and_stays_inside(name: str) -> None:
    for figure in figures(MADE[name]()):
        root = ET.fromstring(_svg.draw(figure))
        wide, high = map(float, root.attrib["viewBox"].split()[2:])
        assert root.attrib["aria-label"].startswith(figure.title[:10])
        for circle in root.iter("circle"):
            assert 0 <= float(circle.attrib["cx"]) <= wide and 0 <= float(circle.attrib["cy"]) <= high
        drawn = [path.attrib["d"] for path in root.iter("path") if path.attrib.get("class") in ("line", "band")]
        numbers = [float(n) for one in drawn for n in re.findall(r"[\d.]+", one)]
        assert all(0 <= n <= wide for n in numbers)


def test_neighbours_are_told_apart_and_stand_off_the_paper() -> None:
    def bright(tone: str) -> float:
        parts = [int(tone[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        return sum(w * (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4) for w, c in zip((0.2126, 0.7152, 0.0722), parts))
    for light, dark in COLORS:
        assert 1.05 / (bright(light) + 0.05) >= 3 and (bright(dark) + 0.05) / (bright("#171b21") + 0.05) >= 3
    looks = [(color(n), dash(n)) for n in range(len(COLORS) * len(DASHES) // 4 * 4)]
    assert max(Counter(looks[:len(COLORS)]).values()) == 1 and len(set(looks)) >= 3 * len(COLORS) // 2


@pytest.mark.parametrize("name", MADE)
def test_a_page_is_whole_loads_nothing_and_escapes_all(name: str, pages: dict[str, str]) -> None:
    text = pages[name]
    read = Reader(text)
    ids = [a["id"] for _, a in read.elements if "id" in a]
    assert max(Counter(ids).values()) == 1
    links = [a["href"] or "" for tag, a in read.elements if "href" in a]
    assert all(one.startswith("#") and one[1:] in ids for one in links) and not any("src" in a for _, a in read.elements)
    assert [tag for tag, _ in read.elements].count("script") == 1 and not any(k.startswith("on") or k == "style" for _, a in read.elements for k in a)
    assert not {tag for tag, _ in read.elements} & {"img", "iframe", "link", "object", "base", "form"}
    policy = next(a["content"] or "" for _, a in read.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'") and len(text.encode()) < page.LARGEST


@pytest.mark.parametrize("name", ["small", "large", "grouped"])
def test_the_verdict_table_is_first(name: str, pages: dict[str, str]) -> None:
    record, text = MADE[name](), pages[name]
    read = Reader(text)
    assert next(a["id"] for tag, a in read.elements if tag == "section") == "verdicts"
    assert next(a["id"] for tag, a in read.elements if tag == "table") == "verdicts-table"
    said = " ".join("".join(read.text).split())
    for c in record["comparisons"]:
        assert c["sentence"] in said and c["verdict"] in said
    assert text.index('class="verdict ') < text.index('id="verdicts"')


def test_every_number_is_in_a_table() -> None:
    record = studies.small()
    cells = {t.id: [{k: c.text for k, c in row.cells.items()} for row in t.rows]
             for t in (make(record, 9999) for make in _tables.ALL)}
    d = record["comparisons"][0]["difference"]
    row = cells["verdicts-table"][0]
    assert [float(row[k]) for k in ("mean", "low", "high", "boot_low", "boot_high")] == pytest.approx(
        [d[k] for k in ("mean", "low", "high", "boot_low", "boot_high")], rel=1e-5)
    assert len(cells["trials-table"]) == 18 and len(cells["rates-table"]) == 6 and len(cells["cost-table"]) == 2
    last = [r for r in cells["curves-table"] if r["split"] == "held_out" and r["step"] == "500"]
    assert float(last[1]["mean"]) == pytest.approx(record["summary"][1]["loss"]["mean"], rel=1e-5) and last[1]["seeds"] == "3"
    assert len(cells["depth-table"]) == 2 * 3 * 12 and {r["step"] for r in cells["depth-table"]} == {"0", "250", "500"}
    diverged = [r for r in cells["trials-table"] if r["state"] == "diverged"]
    assert len(diverged) == 2 and all(r["reason"] == "at step 260: the loss is not finite" for r in diverged)
    assert [q for q, _ in _tables.claims(record, 9999)] == [a["question"] for a in record["answers"]]
    short = _tables.trials(record, 5)
    assert len(short.rows) == 5 and short.left_out.startswith("13 more rows are not on this page")


def test_drawings_are_shared_by_arms_that_are_wired_alike(pages: dict[str, str]) -> None:
    heads = [re.sub(r"<.*?>", "", h) for h in re.findall(r"<h3><code>.*?</code></h3>", pages["large"])]
    assert heads == ["pre_norm, rezero, hyper:lanes=4, sandwich", "none:normed=true, highway, mhc:lanes=4, fixup",
                     "post_norm, deepnorm, layer_scale:init=1e-4, densenet"]
    assert "Without a stream that could be drawn: <code>file.py:build</code>." in pages["bare"] and "could be drawn" not in pages["large"]
    assert pages["large"].count('class="drawing"') == 3


def test_a_large_study_fits() -> None:
    """24 arms of 12 to 35 blocks, five seeds, and 250 points a curve."""
    arms = [studies.arm(f"arm-{i}", i == 0, depth=12, lanes=1 + i, steps=5000, evaluate=20) for i in range(24)]
    text = page.render(studies.study(arms, rates=(1e-3,)))
    assert 200_000 < len(text.encode()) < page.LARGEST and "more rows are not on this page; curves.csv has them all" in text
    assert "arm-23" in text


def test_a_presets_claim_is_on_the_page(pages: dict[str, str]) -> None:
    record, text = studies.claimed(), pages["claimed"]
    claim = record["claim"]
    assert [c["held"] for c in claim["checks"]] == [False, True, False] and claim["held"] is False
    said = " ".join("".join(Reader(text).text).split())
    assert claim["claim"] in said and claim["source"] in said and "classroom: claim failed" in said
    rows = [{k: c.text for k, c in row.cells.items()} for row in _tables.preset(record, 99).rows]
    assert [r["held"] for r in rows] == ["yes" if c["held"] else "no" for c in claim["checks"]] and rows[0]["relation"] == "<="
    assert 'id="preset"' not in pages["small"]


def test_an_incomplete_study_and_a_failed_trial_are_told(pages: dict[str, str]) -> None:
    assert "The study is not complete" in pages["hostile"] and "The study is not complete" not in pages["small"]
    assert "failed: &lt;script&gt;" in pages["hostile"] and samples.SCRIPT not in pages["hostile"]


def test_another_record_is_refused() -> None:
    with pytest.raises(UsageError, match=r"its schema is skipway\.compare/2, want skipway\.compare/1"):
        page.render({**studies.bare(), "schema": "skipway.compare/2"})


@pytest.mark.skipif(not pictures.ready(), reason="matplotlib is not installed")
def test_pictures_are_whole_and_the_same_each_time() -> None:
    record = studies.bare()
    made = dict(pictures.render(record))
    assert set(made) == {f"{f.id}.{form}" for f in figures(record) for form in ("png", "svg")}
    for name, data in made.items():
        assert data.startswith(b"\x89PNG") if name.endswith("png") else ET.fromstring(data).tag.endswith("svg")
    assert dict(pictures.render(record)) == made


@pytest.mark.skipif(not pictures.ready(), reason="matplotlib is not installed")
def test_pictures_of_hostile_names() -> None:
    record = studies.hostile()
    for name, data in pictures.render({**record, "comparisons": [], "arms": record["arms"][:3], "trials": [
            {**t, "depths": []} for t in record["trials"] if "depths" in t]}):
        assert re.fullmatch(r"[a-z_-]+\.(png|svg)", name)
        if name.endswith("svg"):
            elements = list(ET.fromstring(data).iter())
            assert not any(e.tag.endswith("script") or any(k.lower().startswith("on") for k in e.attrib) for e in elements)
