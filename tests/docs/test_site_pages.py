"""The pages of the site that hold files and commands can be followed word for word; `...` stands for what differs from machine to machine."""

import pathlib

import pytest

from . import test_pages
from .test_pages import ROOT, RULES, follow, place

__all__ = ["place"]         # the fixture
OWN = {"configuration.md", "ci.md"}         # test_pages follows these
PAGES = sorted(p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md") if "<!-- run: " in p.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if p not in OWN])
def test_the_page_can_be_followed(page: str, place: pathlib.Path) -> None:
    assert follow(page, place) >= 1


def test_every_guide_that_shows_a_command_is_followed() -> None:
    guides = {p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs" / "howto").glob("*.md")}
    assert guides - set(PAGES) <= {"howto/index.md", "howto/write-a-rule.md"} and {"index.md", "get-started.md"} <= set(PAGES)


def test_what_a_page_shows_is_compared(place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "docs").mkdir()
    monkeypatch.setattr(test_pages, "ROOT", place)
    page = place / "docs" / "page.md"
    page.write_text("<!-- run: 0 -->\n```console\n$ echo one two three\none ... three\n```\n")
    assert follow("page.md", place) == 1
    for wrong in ("one ... four\n", "", "one\n...\ntwo three\n"):
        page.write_text(f"<!-- run: 0 -->\n```console\n$ echo one two three\n{wrong}```\n")
        with pytest.raises(AssertionError, match="echo one two three printed"):
            follow("page.md", place)


def test_get_started_has_the_commands_of_the_readme() -> None:
    readme, page = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/get-started.md"))
    for marker in ("first-command", "test-command"):
        block = readme.partition(f"<!-- {marker} -->\n")[2].partition("\n```")[0] + "\n```"
        assert block in page, f"docs/get-started.md lacks the README's {marker}"


def test_the_front_page_shows_the_readmes_example() -> None:
    readme, page = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/index.md"))
    shown = readme.partition("<!-- example-output -->\n```text\n")[2].partition("```")[0]
    assert shown and RULES.sub("N rules ran", shown) in RULES.sub("N rules ran", page)
