"""The SVG: valid, safe, small, with findings where they are, and cut into pieces; and the same in plain characters."""

import re
import unicodedata
from typing import Any
from xml.etree import ElementTree

import pytest

from skipway._errors import UsageError
from skipway._registry import names
from skipway.report import _escape, drawing, svg
from skipway.report._drawing.canvas import columns
from skipway.report._drawing.layout import layout
from skipway.report._drawing.measure import fitted, width, wrapped
from skipway.wiring.structure import Link

from .drawn import NASTY, Random, encoder_decoder, finding, report, site, stack, stream, unet, wiring

NAMESPACE = "{http://www.w3.org/2000/svg}"
HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
ATTRIBUTES = {"class", "x", "y", "width", "height", "rx", "d", "transform", "id", "href", "viewBox", "role", "aria-label", "data-finding"}


def texts(markup: str) -> list[str]:
    """What a reader sees, in order."""
    return [node.text or "" for node in ElementTree.fromstring(markup).iter(f"{NAMESPACE}text")]


def titles(markup: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(markup).iter(f"{NAMESPACE}title")]


def badges(markup: str) -> list[tuple[str, str]]:
    """(class, number of the finding) of badges inside the drawing."""
    found = ElementTree.fromstring(markup).iter(f"{NAMESPACE}g")
    return [(g.get("class", ""), g.get("data-finding", "")) for g in found if g.get("data-finding") is not None]


LLAMA = wiring(stream("model", stack(32, "model.layers"), stem="model.embed_tokens", final_norm="model.norm"))

GOLDEN = """\
Net  8.03 B parameters  [net.py:Net]

  encoder  6 sites
  ▣ stem encoder.embed
  ┃
╭─┃─ x3 encoder.block.{0-2} ──────────╮
│ ┣──LayerNorm───▶╭ self attention    │
│ ⊕◀──────────────╰ self_attention    │
│ ┣──LayerNorm───▶╭ ffn               │
│ ⊕◀──────────────╰ ffn               │
╰─┃───────────────────────────────────╯
  ◇ final norm encoder.norm
  ┊  decoder  9 sites
  ┊  ▣ stem decoder.embed
  ┊  ┃
  ┊╭─┃─ x3 decoder.block.{0-2} ──────────╮
  ┊│ ┣──LayerNorm───▶╭ self attention    │
  ┊│ ⊕◀──────────────╰ self_attention    │
  ┊│ ┣──LayerNorm───▶╭ cross attention   │
  ╰┼╌╂╌╌╌╌╌╌╌╌╌╌╌╌╌╌▶│ reads encoder     │
   │ ⊕◀──────────────╰ cross_attention   │
   │ ┣──LayerNorm───▶╭ ffn               │
   │ ⊕◀──────────────╰ ffn               │
   ╰─┃───────────────────────────────────╯
     ◇ final norm decoder.norm
     ▼
"""


def test_a_file_of_its_own() -> None:
    whole = svg.render(report(LLAMA))
    root = ElementTree.fromstring(whole)
    assert whole.startswith('<?xml version="1.0" encoding="UTF-8"?>\n<svg') and root.tag == f"{NAMESPACE}svg" and root.get("role") == "img"
    assert root.get("aria-label") == "Net, 8.03 B parameters  [net.py:Net]"
    assert texts(whole) == ["Net", "8.03 B parameters  [net.py:Net]", "model", "64 sites", "stem", "model.embed_tokens", "LayerNorm",
                            "self attention", "self_attention", "LayerNorm", "ffn", "ffn", "×32", "model.layers.{0-31}", "final norm", "model.norm"]
    assert "prefers-color-scheme:dark" in whole and "href" not in whole.replace("xmlns", "") and "<script" not in whole
    assert "url(" not in whole and "@import" not in whole and re.findall(r"https?://[^\"]*", whole) == ["http://www.w3.org/2000/svg"]


def test_every_colour_can_be_set_by_the_page_and_has_a_plain_fallback() -> None:
    sheet = svg.style(dark=False)
    for name in ("paper", "ink", "stream", "branch", "norm", "error", "warning", "note"):
        assert re.search(rf"var\(--sw-{name},#[0-9a-f]{{6}}\)", sheet)
    assert "prefers-color-scheme" not in sheet
    for prop, value in re.findall(r"(fill|stroke):(var[^;}]*)", sheet):
        assert re.search(rf"{prop}:#[0-9a-f]{{6}};{prop}:{re.escape(value)}", sheet)
    used = {c for text in (svg.drawing(LLAMA), svg.drawing(unet()), svg.drawing(encoder_decoder())) for c in re.findall(r'class="([^"]*)"', text)}
    assert all(one.startswith("sw-") for group in used for one in group.split())


def test_folded_and_open() -> None:
    assert svg.folds(LLAMA) == [("sw-f0", "x32 model.layers.{0-31}")]
    closed, opened = svg.drawing(LLAMA), svg.drawing(LLAMA, open="all")
    assert texts(closed).count("model.layers.{0-31}") == 1 and "model.layers.3" not in texts(closed)
    assert [t for t in texts(opened) if t.startswith("model.layers")] == [f"model.layers.{n}" for n in range(32)]
    assert svg.drawing(LLAMA, open={"sw-f0"}) == opened and svg.drawing(LLAMA, open=set()) == closed
    shared = ElementTree.fromstring(opened)
    ids = {g.get("id") for g in shared.iter(f"{NAMESPACE}g") if g.get("id")}
    assert ids == {"sw-b0"} and [u.get("href") for u in shared.iter(f"{NAMESPACE}use")] == ["#sw-b0"] * 32
    assert 'id="other-b0"' in svg.drawing(LLAMA, open="all", prefix="other")


def test_a_deep_model_fully_open_is_small() -> None:
    deep = wiring(stream("model", stack(126, "model.layers")))
    assert len(svg.drawing(deep, open="all")) < 200_000 and len(svg.drawing(deep)) < 20_000


def test_pieces_stand_under_each_other() -> None:
    found = [finding(f"decoder.block.{n}.ffn") for n in range(3)]
    pieces = svg.pieces(encoder_decoder(), found)
    whole = ElementTree.fromstring(svg.drawing(encoder_decoder(), found, legend=False))
    sizes = [(int(r.get("width", "")), int(r.get("height", ""))) for r in (ElementTree.fromstring(p.closed) for p in pieces)]
    assert {w for w, _ in sizes} == {int(whole.get("width", ""))} and sum(h for _, h in sizes) == int(whole.get("height", "")) - 16
    assert [p.label for p in pieces] == ["stream encoder, stem encoder.embed", "x3 encoder.block.{0-2}", "final norm encoder.norm",
                                         "stream decoder, stem decoder.embed", "x3 decoder.block.{0-2}", "final norm decoder.norm"]
    assert [len(p.opened) for p in pieces] == [0, 3, 0, 0, 3, 0] and [p.findings for p in pieces] == [(), (), (), (), (0, 1, 2), ()]
    assert len({p.id for p in pieces}) == 6 and all(re.fullmatch(r"page-[a-z0-9-]+", p.id) for p in svg.pieces(encoder_decoder(), prefix="page"))
    assert badges(pieces[4].closed) == [("sw-badge sw-error", "0")]
    assert [badges(one) for one in pieces[4].opened] == [[("sw-badge sw-error", str(n))] for n in range(3)]
    assert not any(" id=" in one for p in pieces for one in (p.closed, *p.opened))


@pytest.mark.parametrize("severity", ["error", "warning", "note"])
def test_a_finding_stands_out_where_it_is(severity: str) -> None:
    found = [finding("model.layers.5.ffn", severity=severity, message="`model.layers.5.ffn` is <wrong>", line=7)]
    drawn = svg.drawing(LLAMA, found)
    assert badges(drawn) == [(f"sw-badge sw-{severity}", "0")]
    boxes = [r.get("class") for r in ElementTree.fromstring(drawn).iter(f"{NAMESPACE}rect") if "sw-box" in r.get("class", "")]
    assert boxes.count(f"sw-box sw-at-{severity}") == 1 and boxes.count("sw-box") == 3
    mild = "" if severity == "error" else f" [{severity}]"
    assert f"SKW201 normed-skip: `model.layers.5.ffn` is <wrong> (net.py:7){mild}" in titles(drawn)
    assert f"normed-skip: `model.layers.5.ffn` is <wrong> (net.py:7){mild}" in " ".join(texts(drawn))
    assert [t for t in texts(drawn) if t.startswith("model.layers")] == ["model.layers.{0-4}", "model.layers.5", "model.layers.{6-31}"]


def test_a_finding_without_a_place_is_in_the_legend_alone() -> None:
    drawn = svg.drawing(LLAMA, [finding("lm_head")])
    assert badges(drawn) == [] and "normed-skip: `lm_head` is wrong (lm_head)" in texts(drawn)
    assert texts(svg.drawing(LLAMA, [finding("lm_head")], legend=False)) == texts(svg.drawing(LLAMA))


def test_long_skips_are_arcs_from_where_they_begin() -> None:
    drawn = svg.drawing(unet())
    assert texts(drawn).count("long skip, concatenated") == 2 and drawn.count('class="sw-stream sw-skip"') > 4
    assert "concat of stream two after its end" in titles(drawn)


def test_lanes_are_parallel_lines() -> None:
    four = wiring(stream("net", stack(2, shortcut="mixed"), lanes=4))
    lanes = [p.get("d", "") for p in ElementTree.fromstring(svg.drawing(four)).iter(f"{NAMESPACE}path") if "sw-lane" in p.get("class", "")]
    assert lanes and all(d.count("M") == 4 for d in lanes) and "2 sites, 4 lanes" not in texts(svg.drawing(four)) and "4 sites, 4 lanes" in texts(
        svg.drawing(four))


# hostile names


@pytest.mark.parametrize("seed", range(60))
def test_random_hostile_reports(seed: int) -> None:
    whole = Random(seed).report()
    made = layout(whole["wiring"], whole["findings"])
    for text in (svg.render(whole), svg.render(whole, open="all")):
        root = ElementTree.fromstring(text.encode())
        assert {node.tag.removeprefix(NAMESPACE) for node in root.iter()} <= {"svg", "style", "rect", "g", "text", "title", "path", "defs", "use"}
        assert {name for node in root.iter() for name in node.attrib} <= ATTRIBUTES
        assert not {unicodedata.category(c) for c in "".join(root.itertext())} & HIDDEN and all(len(t) <= 1200 for t in [*texts(text), *titles(text)])
        assert all(n.get("href", "#sw-").startswith("#sw-") for n in root.iter())
    pieces = svg.pieces(whole["wiring"], whole["findings"])
    for piece in pieces:
        for one in (piece.closed, *piece.opened):
            ElementTree.fromstring(one)
    assert {n for p in pieces for n in p.findings} == set(made.placed)
    told = {int(n) for p in pieces for one in (p.closed, *p.opened) for _, n in badges(one)}
    assert told <= set(made.placed)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("columns_", [40, 100])
def test_characters_fit_and_are_safe(seed: int, columns_: int) -> None:
    whole = Random(seed).report()
    for open_ in ("none", "all"):
        text = drawing.render(whole, width=columns_, open=open_)
        assert max(columns(line) for line in text.split("\n")) <= columns_ and text.endswith("\n")
        assert not {unicodedata.category(c) for c in text if c != "\n"} & HIDDEN
        coloured = drawing.render(whole, width=columns_, open=open_, color=True)
        assert re.sub(r"\x1b\[\d+m", "", coloured) == text
    plain = drawing.render(whole, width=columns_, ascii_only=True)
    assert plain.isascii() and max(map(len, plain.split("\n"))) <= columns_ and not any(line.endswith(" ") for line in plain.split("\n"))


@pytest.mark.parametrize("name", NASTY)
def test_a_long_name_is_shown_in_the_middle_of_which_something_is_left_out(name: str) -> None:
    drawn = svg.drawing(wiring(stream("net", (site(0, 0, f"layers.{name}.0"),))))
    ElementTree.fromstring(drawn)
    whole = _escape.plain(f"layers.{name}.0")
    assert whole in texts(drawn) or whole in titles(drawn)


def test_a_drawing_that_forgets_to_escape_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skipway.report._drawing.svg_ink.xml", lambda text, limit=400: text)
    with pytest.raises((AssertionError, ElementTree.ParseError)):
        for seed in range(60):
            test_random_hostile_reports(seed)


# plain characters


def test_golden() -> None:
    assert drawing.render(report(encoder_decoder())) == GOLDEN
    assert drawing.draw(encoder_decoder(), "text") == GOLDEN.replace("  [net.py:Net]", "")


def test_a_memory_told_by_a_line_that_crosses_nothing_away() -> None:
    assert drawing.render(report(encoder_decoder()), ascii_only=True).splitlines()[19] == "  '+.|..............>| reads encoder     |"


@pytest.mark.parametrize(("of", "lines"), [
    (wiring(stream("net", (site(0, 0, "a", "self_attention+ffn"),))), [
        "│ ┣─┬─LayerNorm─────▶╭ self attention   ╮  │", "│ ⊕◀────────────────────────────────────╯  │"]),
    (wiring(stream("net", (site(0, 0, "a", shortcut="projection", gain=2.0),))), ["│ ▣ projection gain ×2  │             │"]),
    (wiring(stream("net", (site(0, 0, "a"),), lanes=4)), ["│ ╠──LayerNorm───▶╭ ffn        │"]),
    (wiring(stream("net", (site(0, 0, "a"), site(1, 0, "a", shortcut_from=0)))), ["│ ┃ the shortcut is the state of 1 site before   │"]),
    (wiring(stream("net", stack(4), final_norm=None), links=(Link("add", "net", 0, "net", 8),)), ["╭──┫", "╰──⊕ long skip", "   ▼"])])
def test_lines_of_a_terminal(of: dict[str, Any], lines: list[str]) -> None:
    text = drawing.render(report(of))
    for line in lines:
        assert any(line.rstrip("│ ") in one for one in text.splitlines()), text


def test_findings_in_a_terminal() -> None:
    missing = finding("layers.3.out", "missing-skip", "SKW101", line=9, message="no path goes around it")
    text = drawing.render(report(wiring(stream("net", stack(6))), missing, finding("layers.1.ffn", severity="warning")), color=True)
    assert re.search(r"\x1b\[31m■ out: no skip around it +SKW101\x1b\[0m", text) and "\x1b[33mffn" in text
    assert text.index("layers.3") < text.index("out: no skip") < text.index("layers.{4-5}")
    assert text.rstrip().splitlines()[-2].endswith("missing-skip: no path goes around it (net.py:9)")


@pytest.mark.parametrize(("form", "options", "part"), [
    ("pdf", {}, "draw: got format 'pdf', want one of text, svg, html"), ("html", {"open": True}, "format html and open repeats"),
    ("html", {"only": "net"}, "format html and one stream"), ("svg", {"only": "nett"}, "stream 'nett' is no main stream of this wiring; it has net")])
def test_what_cannot_be_drawn(form: str, options: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError, match=re.escape(part)):
        drawing.draw(wiring(stream("net", stack(2))), form, **options)


def test_the_drawing_is_a_format() -> None:
    assert {"drawing", "svg"} <= set(names("skipway.report"))
    with pytest.raises(UsageError, match=r"draw: neither a report nor a wiring"):
        drawing.draw({"schema": "x"})
    newer = {**wiring(), "schema": "skipway.wiring/2"}
    with pytest.raises(UsageError, match=r"draw: made by a newer skipway"):
        drawing.draw(newer)


# text that has to fit


@pytest.mark.parametrize(("text", "room"), [("layers.0.feed_forward", 60.0), ("A" * 10_000, 100.0), ("層" * 40, 50.0), ("", 10.0), ("x", 1.0)])
def test_text_is_cut_to_its_room(text: str, room: float) -> None:
    shown = fitted(text, 12, room)
    assert width(shown, 12) <= room and (shown == text or "…" in shown or shown == "")


def test_words_are_wrapped() -> None:
    assert wrapped("one two three", 7, len) == ["one two", "three"] and wrapped("one two three", 7, len, 3) == ["one", "two", "three"]
    assert wrapped("abcdefghij", 4, len) == ["abcd", "efgh", "ij"] and wrapped("", 4, len) == [""]
    assert wrapped("a abcdef", 4, len) == ["a", "abcd", "ef"]
