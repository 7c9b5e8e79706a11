"""Names that other people chose: nothing in an annotation, a SARIF file, JSON or the terminal breaks on them."""

import json
import re
import unicodedata
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipway.report import render, render_all
from skipway.report.text import render_findings

from . import records, sarif_schema

NASTY = ("<script>alert(1)</script>", "\"'`", "a\nb\r\n::error::c", "\u202egnp.py\u2066", "\x1b[31mred\x1b]0;t\x07", "n" * 10_000, "50%,a:b=c",
         "\ud800", "\x00\x85\u2028", "##[error]x", "::stop-commands::x", "](javascript:x)", "C:\\net\\f.py", "..", "\t", "#?&%2F", "e\u0301\u0301",
         "{0} {}", "\N{PILE OF POO}")
names = st.one_of(st.sampled_from(NASTY), st.text(st.characters(), max_size=40), st.lists(st.sampled_from(NASTY), max_size=3).map(".".join))
files = st.one_of(st.none(), names, names.map(lambda n: "/" + n))
HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@st.composite
def reports(draw: st.DrawFn) -> dict[str, Any]:
    """A report in which every name and text is drawn."""
    found = [records.finding(draw(names), draw(names), draw(st.sampled_from(("error", "warning", "note"))), draw(files),
                             draw(st.one_of(st.none(), st.integers(-1, 10**9))), name=draw(names)) for _ in range(draw(st.integers(0, 4)))]
    site = replace(records.site(0, draw(names)), file=draw(files), norm=draw(names), norm_modules=(draw(names),))
    report = records.report(*found, sites=(site,), target=draw(st.one_of(st.none(), names)), notes=(draw(names),))
    (stream,) = report.wiring.streams
    stream = replace(stream, name=draw(names), stem=draw(names), final_norm=draw(names))
    return replace(report, wiring=replace(report.wiring, streams=(stream,), model=draw(names), how=draw(names))).to_dict()


def shown(text: str) -> list[str]:
    """Characters, besides line ends, that a terminal would obey or hide."""
    return sorted({c for c in text if c != "\n" and unicodedata.category(c) in HIDDEN})


@settings(deadline=None, max_examples=150)
@given(reports())
def test_annotations_are_a_line_each(report: dict[str, Any]) -> None:
    text = render(report, "github")
    *commands, totals = text.removesuffix("\n").split("\n")
    assert len(text.splitlines()) == len(commands) + 1 <= len(report["findings"]) + 1 and shown(text) == []
    assert totals.startswith("skipway: ") and "##[" not in totals
    for line in commands:
        head, _, _ = line.removeprefix("::").partition("::")
        name, _, given_ = head.partition(" ")
        assert line.startswith("::") and name in ("error", "warning", "notice")
        assert [part.split("=")[0] for part in given_.split(",")] in (["title"], ["file", "title"], ["file", "line", "title"])
        assert re.fullmatch(r"(%(25|0D|0A|3A|2C)|[^%])*", line)


@settings(deadline=None, max_examples=100)
@given(reports(), reports())
def test_sarif_stays_valid(report: dict[str, Any], other: dict[str, Any]) -> None:
    text = render_all([report, other], "sarif")
    assert sarif_schema.problems(text) == []
    text.encode("utf-8")
    runs = json.loads(text)["runs"]
    assert sum(r.get("occurrenceCount", 1) for r in runs[0]["results"]) == len(report["findings"])
    for result in runs[0]["results"]:
        assert shown(result["message"]["text"]) == [] and len(result["message"]["text"]) < 13_000
        uri = result["locations"][0].get("physicalLocation", {}).get("artifactLocation", {}).get("uri", "x")
        assert re.fullmatch(r"(file:///)?([A-Za-z0-9/!$&'()*+,;=@~._-]|%[0-9A-F]{2})*", uri)


@settings(deadline=None, max_examples=150)
@given(reports(), st.booleans())
def test_a_terminal_shows_every_character(report: dict[str, Any], color: bool) -> None:
    for text in (render(report, color=color), render_findings(report, color=color)):
        bare = re.sub(r"\x1b\[(\d+)m", "", text) if color else text
        assert shown(bare) == [] and max(map(len, bare.splitlines()), default=0) <= 100
        assert len(bare) < 100_000
    totals = render(report).splitlines()[-1]
    assert "1 site on 1 stream" in render(report) and totals.startswith((" ", "no findings", "1 ", "2 ", "3 ", "4 "))


@settings(deadline=None, max_examples=150)
@given(reports())
def test_json_comes_back(report: dict[str, Any]) -> None:
    text = render(report, "json")
    text.encode("utf-8")
    assert json.loads(text) == json.loads(json.dumps(report))
    assert render(json.loads(text)) == render(report)


@pytest.mark.parametrize("name", NASTY)
def test_each_name_in_each_place(name: str) -> None:
    found = records.finding(name, name, file=name, line=3)
    report = records.report(found, found, target=name, notes=(name,), sites=(records.site(0, name, name, 3),)).to_dict()
    for form in ("text", "github"):
        assert shown(render(report, form)) == []
    assert len(render(report, "github").splitlines()) == 2
    assert sarif_schema.problems(render(report, "sarif")) == []
