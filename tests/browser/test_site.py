"""The built site in a real browser: every page is quiet, asks for nothing outside, leads nowhere wrong, fits its window, and can be read by all."""

import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest

from .conftest import Browser, missing

ROOT = pathlib.Path(__file__).parents[2]
VIEWS = tuple((width, theme) for width in (1280, 360) for theme in ("light", "dark"))
CUT = """return [...document.querySelectorAll('article table')].filter((t) => {
    const frame = t.closest('.table, .lesson-output') || t.parentElement;
    return t.offsetWidth > frame.clientWidth + 1;
}).map((t) => t.innerText.slice(0, 40));"""
TAB, ENTER, SPACE, DOWN = "\ue004", "\ue007", " ", "\ue015"
pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """Ids, links and sources of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.twice: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("id"):
            if given["id"] in self.ids:
                self.twice.append(str(given["id"]))
            self.ids.add(str(given["id"]))
        if tag == "a" and given.get("name"):
            self.ids.add(str(given["name"]))
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        if tag in ("script", "img", "iframe", "source", "video", "object") and given.get("src"):
            self.sources.append(str(given["src"]))
        if tag == "link" and given.get("href") and given.get("rel") not in ("prev", "next", "canonical"):
            self.sources.append(str(given["href"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The whole site, built as `python docs/build.py` builds it; lessons that were run before and have not changed are not run again."""
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    given = os.environ.get("SKIPWAY_SITE")
    if given:
        return pathlib.Path(given)
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, str(ROOT / "docs" / "build.py"), "--site", str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr.strip(), f"the build warns: {done.stderr}"
    return folder


@pytest.fixture(scope="module")
def pages(site: pathlib.Path) -> dict[pathlib.Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def outside(address: str) -> bool:
    return urllib.parse.urlparse(address).scheme in ("http", "https") or address.startswith("//")


def wrong(site: pathlib.Path, pages: dict[pathlib.Path, Page]) -> Iterator[str]:
    """Links and anchors of all pages that lead nowhere."""
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for link in page.links:
            parts = urllib.parse.urlparse(link)
            if parts.scheme or link.startswith("//"):
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or not target.is_relative_to(site.resolve()):
                yield f"{path.relative_to(site)}: {link}"
            elif parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].ids:
                yield f"{path.relative_to(site)}: {link} (no such anchor)"


def test_no_link_is_broken(site: pathlib.Path, pages: dict[pathlib.Path, Page]) -> None:
    resolved = {path.resolve(): page for path, page in pages.items()}
    assert len(pages) > 40 and list(wrong(site.resolve(), resolved)) == []


def test_a_broken_link_is_seen(tmp_path: pathlib.Path) -> None:
    one = tmp_path / "a.html"
    one.write_text('<a href="b.html">x</a><a href="#here">y</a><a href="#there">z</a><p id="here">')
    assert list(wrong(tmp_path, {one: Page(one.read_text())})) == ["a.html: b.html", "a.html: #there (no such anchor)"]


def test_no_page_names_an_outside_source(site: pathlib.Path, pages: dict[pathlib.Path, Page]) -> None:
    assert {f"{p.relative_to(site)}: {s}" for p, page in pages.items() for s in page.sources if outside(s)} == set()
    assert outside("//cdn.example/x.js") and outside("https://a.example") and not outside("assets/site.css")
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert "url(http" not in text and "url(//" not in text and "@import" not in text, sheet


def test_every_page_states_its_version(site: pathlib.Path, pages: dict[pathlib.Path, Page]) -> None:
    import importlib.metadata
    said = f"Built from skipway {importlib.metadata.version('skipway')}"
    assert [p.name for p in pages if said not in p.read_text(encoding="utf-8")] == []


def test_no_id_is_there_twice(site: pathlib.Path, pages: dict[pathlib.Path, Page]) -> None:
    assert {str(p.relative_to(site)): page.twice[:3] for p, page in pages.items() if page.twice} == {}


def test_code_that_is_a_file_shows_its_name(site: pathlib.Path) -> None:
    count = 0
    for source in sorted((ROOT / "docs").rglob("*.md")):
        names = re.findall(r"^<!-- file: (\S+) -->$", source.read_text(encoding="utf-8"), re.M)
        page = (site / source.relative_to(ROOT / "docs")).with_suffix(".html").read_text(encoding="utf-8")
        assert [name for name in re.findall(r'class="filename">(.+?)<', page) if not name.startswith("src/")] == names, source.name
        count += len(names)
    assert count > 20


def test_the_index_leads_to_every_lesson_and_no_lesson_shows_an_address(site: pathlib.Path) -> None:
    lessons = sorted(p.stem for p in (ROOT / "docs" / "learn").glob("[0-9]*.py"))
    main = (site / "learn" / "index.html").read_text(encoding="utf-8").partition("<article")[2].partition("</article")[0]
    assert re.findall(r'href="([0-9]+-[^"]+)\.html"', main) == lessons
    for name in lessons:
        assert not re.search(r" at 0x[0-9a-f]{6,}", (site / "learn" / f"{name}.html").read_text(encoding="utf-8")), name


def test_every_page_is_quiet_fits_and_can_be_read(site: pathlib.Path, pages: dict[pathlib.Path, Page], browser: Browser, axe: str) -> None:
    """Every page at 1280 and 360 pixels, light and dark; all faults of all pages are told at once."""
    if not pages:
        missing("the site has no pages")
    faults: list[str] = []
    for path in pages:
        name = path.relative_to(site).as_posix()
        for width, theme in VIEWS:
            browser.open(path, width=width, theme=theme)
            browser.run("document.querySelectorAll('main details').forEach((d) => { if (d.innerHTML.length < 50000) d.open = true; })")
            at = f"{name} {width} {theme}"
            faults += [f"{at}: says {text}" for text in browser.said()]
            faults += [f"{at}: asks for {address}" for address in browser.asked() if outside(address)]
            wide = browser.run("return document.documentElement.scrollWidth")
            faults += [f"{at}: {wide} pixels wide"] * (wide > width)
            cut = browser.run(CUT) if width == 1280 else []
            faults += [f"{at}: the table that begins {text!r} is cut" for text in cut]
            scheme = browser.run("return document.body.dataset.mdColorScheme")
            faults += [f"{at}: colours are {scheme}"] * (scheme != {"light": "default", "dark": "slate"}[theme])
            faults += [f"{at}: {violation}" for violation in browser.violations(axe)]
    assert faults == [], "\n".join(faults)


def test_search_works_without_a_server(site: pathlib.Path, browser: Browser) -> None:
    from selenium.webdriver.support.ui import WebDriverWait
    browser.open(site / "index.html")
    browser.run("document.querySelector('[data-md-toggle=search]').click()")
    box = browser.find("input[name=query]")
    box.send_keys("missing skip")
    found = WebDriverWait(browser.driver, 20).until(lambda d: browser.run(
        "return [...document.querySelectorAll('.md-search-result__item a')].map((a) => a.getAttribute('href'))"))
    assert any("rules.html" in link for link in found)
    for query in (*"abcdefghijklmnopqrstuvwxyz0123456789", "nn.Stack", "SKW101", "x + F(x)", "2017"):
        box.clear()
        box.send_keys(query)
        time.sleep(0.3)         # the theme waits a moment for the next key
    assert browser.said() == [] and not [a for a in browser.asked() if outside(a)]


def test_the_atlas_can_be_searched(site: pathlib.Path, browser: Browser) -> None:
    browser.open(site / "atlas.html")
    rows = "return [...document.querySelectorAll('[data-filter] tbody')].map((t) => [...t.rows].filter((r) => !r.hidden).length)"
    before = browser.run(rows)
    boxes = browser.all(".table-filter input")
    assert len(boxes) == len(before) and sum(before) > 700
    big = max(range(len(before)), key=lambda i: before[i])
    browser.click(boxes[big])
    browser.press("sandwich rmsnorm")
    after = browser.run(rows)
    assert 0 < after[big] < before[big] and after[:big] + after[big + 1:] == before[:big] + before[big + 1:]
    assert f"{after[big]} of {before[big]} rows" in [o.text for o in browser.all(".table-filter output")]


def test_a_check_is_answered_by_keyboard_alone(site: pathlib.Path, browser: Browser) -> None:
    page = next((p for p in sorted((site / "learn").glob("[0-9]*.html")) if 'type="radio"' in p.read_text(encoding="utf-8")), None)
    if page is None:
        pytest.skip("no lesson has a question with choices yet")
    browser.open(page)
    answer = browser.run("""
        const field = [...document.querySelectorAll('.check fieldset')].find((f) => f.querySelector('[type=radio]'));
        field.id = 'asked';
        field.querySelector('[type=radio]').focus();
        return Number(field.dataset.answer);
    """)
    browser.press(SPACE, *([DOWN] * answer), TAB, ENTER)
    assert browser.find("#asked [role=status]").text == "Right."
    browser.press(TAB, ENTER)
    assert browser.run("return document.querySelector('#asked details').open")
