"""What the site adds to the pages: names of files over code, lists of pages, room for wide tables, fields of dataclasses."""

import dataclasses
import pathlib
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parents[2]
for name in ("mkdocs", "jupytext", "griffe"):
    pytest.importorskip(name, reason="the extra docs is not installed")
sys.path.insert(0, str(ROOT / "docs"))

import _fields  # noqa: E402
import _lessons  # noqa: E402
import _site  # noqa: E402
import griffe  # noqa: E402

from skipway.checks import records  # noqa: E402
from skipway.wiring import structure  # noqa: E402

PAGES = sorted(p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md"))
MARK = re.compile(r"^<!-- file: (\S+) -->$", re.M)


def shown(page: str, text: str | None = None) -> tuple[str, dict[str, Any]]:
    """A page as mkdocs gets it, and what is set for it."""
    it = SimpleNamespace(file=SimpleNamespace(src_uri=page), meta={})
    return _site.on_page_markdown(text or (ROOT / "docs" / page).read_text(encoding="utf-8"), it, None, None), it.meta


def unnamed(text: str) -> list[str]:
    """Files of a page that its prose does not name."""
    prose = re.sub(r"^```.*?^```$|<!--.*?-->", "", text, flags=re.M | re.S)
    return [name for name in MARK.findall(text) if f"`{name}`" not in prose]


@pytest.mark.parametrize("page", [p for p in PAGES if MARK.search((ROOT / "docs" / p).read_text(encoding="utf-8"))])
def test_code_that_is_a_file_has_its_name(page: str) -> None:
    """As the title of its frame on the site, and in the prose for those who read the page elsewhere."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    made, _ = shown(page)
    assert re.findall(r'^```\w+ title="(.+)"$', made, re.M) == MARK.findall(text) and not MARK.search(made)
    assert unnamed(text) == []


def test_a_file_without_a_name_is_seen() -> None:
    block = "<!-- file: a.py -->\n```python\nx = 'a.py'\n```\n"
    assert unnamed(block) == ["a.py"] and unnamed(f"In `a.py`:\n\n{block}") == []
    assert shown("page.md", block)[0].startswith('```python title="a.py"')


@pytest.mark.parametrize("folder", ["learn", "decisions"])
def test_an_index_lists_every_page_of_its_folder(folder: str) -> None:
    made, _ = shown(f"{folder}/index.md")
    names = [p.stem for p in _lessons.found()] if folder == "learn" else [p.stem for p in sorted((ROOT / "docs" / folder).glob("[0-9]*.md"))]
    listed = re.findall(r"^- \[(.+)\]\((.+)\.md\)$", made, re.M)
    assert len(names) > 10 and [name for _, name in listed if name[0].isdigit()] == names
    assert all(title and title != f"{name}.md" for title, name in listed)


def test_a_wide_table_takes_the_room_of_the_table_of_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, hidden in ((_site.WIDE - 1, []), (_site.WIDE, ["toc"])):
        row = "| a " * columns + "|\n"
        assert shown("page.md", row + "|---" * columns + "|\n" + row)[1].get("hide", []) == hidden
        html = f"<table><thead><tr>{'<th scope=col>a</th>' * columns}</tr></thead></table>"
        monkeypatch.setitem(_site.PARTS, "lesson-1-0", html)
        assert shown("page.md", '<div data-output="lesson-1-0"></div>')[1].get("hide", []) == hidden


def test_long_code_of_a_table_can_go_on_in_the_next_line() -> None:
    path = "transformers/models/mra/modeling_mra.py:363"
    made = _site._breaking(f"<table><tr><td><code>{path}</code></td><td><code>a/b</code></td></tr></table>")
    assert "transformers/<wbr>models/<wbr>" in made and "<code>a/b</code>" in made and made.replace("<wbr>", "").count(path) == 1


@pytest.mark.parametrize("kind", [structure.Site, structure.Stream, structure.Branch, records.Finding])
def test_the_fields_of_a_dataclass_are_in_its_docstring(kind: type[Any]) -> None:
    package = griffe.load(kind.__module__, search_paths=[str(ROOT / "src")], extensions=griffe.load_extensions(_fields.Fields()))
    text = package[kind.__name__].docstring.value
    told = re.findall(r"^    (\w+): ", text.partition("Attributes:\n")[2], re.M)
    assert told == [f.name for f in dataclasses.fields(kind)]


def test_the_values_of_a_set_are_written_out() -> None:
    assert _fields.words("one of SEVERITIES: how bad", records) == "one of `note`, `warning`, `error`: how bad"
    assert _fields.words('"SKW101"', records) == 'such as "SKW101"' and _fields.words("a place", records) == "a place"
