"""Names made safe to show."""

import re
import unicodedata
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipway.report._escape import middle, plain, xml

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
anything = st.text(st.characters(), max_size=80)


@pytest.mark.parametrize(("text", "shown"), [
    ("layers.0.attn", "layers.0.attn"), ("a\nb\tc\rd", "a\\nb\\tc\\rd"), ("\u202eexe", "U+202Eexe"), ("\x1b[31m", "U+001B[31m"), ("\ud800", "U+D800"),
    ("\u200b\ufeff\x00\x85\u2028", "U+200BU+FEFFU+0000U+0085U+2028"), ("\ufffe", "U+FFFE"), ("é層", "é層"), ("", "")])
def test_hidden_characters_are_shown(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize(("limit", "shown"), [
    (400, "abcdefgh"), (8, "abcdefgh"), (7, "abc…fgh"), (4, "ab…h"), (3, "a…h"), (2, "a…"), (1, "…"), (0, "")])
def test_the_middle_is_left_out(limit: int, shown: str) -> None:
    assert middle("abcdefgh", limit) == plain("abcdefgh", limit) == shown


def test_long_names_keep_both_ends() -> None:
    shown = plain("start" + "x" * 10_000_000 + "end")
    assert len(shown) == 400 and shown.startswith("startx") and shown.endswith("xend")


@given(anything, st.integers(0, 60))
def test_what_comes_out_is_safe(text: str, limit: int) -> None:
    shown = plain(text, limit)
    assert len(shown) <= limit and not {unicodedata.category(c) for c in shown} & HIDDEN


@given(anything)
def test_xml_text_and_attributes_say_what_plain_says(text: str) -> None:
    root = ElementTree.fromstring(f'<a b="{xml(text)}" c=\'{xml(text)}\'>{xml(text)}</a>')
    assert root.text == (plain(text) or None) and root.get("b") == root.get("c") == plain(text)
    assert not re.search(r"[<>\"']", xml(text))
