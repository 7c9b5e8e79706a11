"""The HTML report in a real browser: it asks for nothing, runs nothing but its own script, and works with mouse, keyboard and neither."""

import functools
import http.server
import json
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from skipway.report import render

from ..report import samples
from .conftest import Browser

TAB, ENTER, SPACE = "\ue004", "\ue007", " "
PAGES = ("plain", "clean", "hostile", "largest", "empty")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pathlib.Path]:
    """One file a report."""
    folder = tmp_path_factory.mktemp("pages")
    reports = {"plain": samples.plain(folder, 12), "clean": samples.clean(), "hostile": samples.hostile(folder), "largest": samples.largest(folder),
               "empty": samples.report((), ())}
    for name, report in reports.items():
        (folder / f"{name}.html").write_text(render(report, "html"), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in reports}


def use_everything(browser: Browser) -> None:
    """Every control of the page once."""
    browser.run("""
        document.querySelectorAll('details').forEach((one) => { one.open = true; });
        document.querySelectorAll('button').forEach((one) => one.click());
        document.querySelectorAll('input').forEach((one) => { one.value = '<b>'; one.dispatchEvent(new Event('input')); });
        [...document.querySelectorAll('a[href]')].slice(0, 40).forEach((one) => one.click());
        const click = () => new MouseEvent('click', {bubbles: true, cancelable: true});
        [...document.querySelectorAll('[data-finding]')].slice(0, 40).forEach((one) => one.dispatchEvent(click()));
    """)


@pytest.mark.parametrize("name", PAGES)
def test_it_is_quiet_and_asks_for_nothing(name: str, browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.open(pages[name])
    use_everything(browser)
    assert browser.said() == []
    assert {address.partition("#")[0] for address in browser.asked()} == {pages[name].as_uri()}
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    assert browser.run("return [window.ran, document.images.length, document.scripts.length, document.styleSheets.length]") == [None, 0, 1, 1]


def test_a_server_is_asked_for_the_page_alone(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, form: str, *arguments: Any) -> None:
            asked.append(self.path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=pages["plain"].parent)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser.open(f"http://127.0.0.1:{server.server_port}/plain.html")
        use_everything(browser)
        said = browser.said()
        server.shutdown()
    assert (asked, said) == (["/plain.html"], [])


def plant(pages: dict[str, pathlib.Path], old: str, new: str) -> pathlib.Path:
    text = pages["plain"].read_text(encoding="utf-8")
    assert old in text
    path = pages["plain"].with_name("planted.html")
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


@pytest.mark.parametrize("added", ["<script>window.ran = 1</script>", "<p onclick='window.ran = 1' id='p'>x</p>", "<p style='color: red'>x</p>",
                                   "<img src='http://example.invalid/x.png' alt=''>", "<iframe src='http://example.invalid/'></iframe>"])
def test_the_policy_stops_what_is_planted_and_the_log_shows_it(added: str, browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.open(plant(pages, "</main>", f"{added}</main>"))
    browser.run("document.getElementById('p')?.click()")
    said = browser.said()
    assert said and all("Content Security Policy" in one for one in said)
    assert browser.run("return window.ran") is None


def test_without_the_policy_what_is_planted_is_seen(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    open_policy = plant(pages, "http-equiv=\"Content-Security-Policy\"", "name=\"none\"")
    added = "<script>window.ran = 1; console.warn('x')</script><img src='http://example.invalid/x.png' alt=''></main>"
    open_policy.write_text(open_policy.read_text(encoding="utf-8").replace("</main>", added), encoding="utf-8")
    browser.open(open_policy)
    assert browser.run("return window.ran") == 1
    assert any("WARNING" in one for one in browser.said()) and "http://example.invalid/x.png" in browser.asked()


@pytest.fixture
def plain(browser: Browser, pages: dict[str, pathlib.Path]) -> Iterator[Browser]:
    """The plain page at 1280 pixels, with nothing kept from another test."""
    browser.open(pages["plain"])
    browser.run("localStorage.clear()")
    browser.open(pages["plain"])
    yield browser
    assert browser.said() == []


FOLDED = "const f = document.querySelector('.strip details'); const see = (e) => e.checkVisibility() && e.getBoundingClientRect().height > 0; " \
         "return [f.open, see(f.querySelector('summary svg')), [...f.querySelectorAll('.opened > svg')].filter(see).length]"


def test_folds_open_by_mouse(plain: Browser) -> None:
    blocks = plain.run("return document.querySelectorAll('.strip details')[0].querySelectorAll('.opened > svg').length")
    assert blocks >= 10 and plain.run(FOLDED) == [False, True, 0]
    plain.click(plain.find(".strip summary .chevron"))
    assert plain.run(FOLDED) == [True, False, blocks]
    plain.click(plain.find(".strip summary .chevron"))
    assert plain.run(FOLDED) == [False, True, 0]
    plain.click(plain.find(".strip summary svg"))
    assert plain.run(FOLDED) == [True, False, blocks]


@pytest.mark.parametrize("key", [ENTER, SPACE])
def test_folds_open_by_keyboard(key: str, plain: Browser) -> None:
    reach(plain, "document.activeElement.matches('.strip summary')")
    plain.press(key)
    assert plain.run(FOLDED)[:2] == [True, False]
    assert plain.run("return document.activeElement.matches('.strip summary')"), "the focus stays, so the same key closes"
    plain.press(key)
    assert plain.run(FOLDED) == [False, True, 0]


def test_all_folds_at_once(plain: Browser) -> None:
    button = plain.find("[data-folds]")
    button.click()
    assert plain.run("return [...document.querySelectorAll('.strip details')].every((f) => f.open)")
    assert (button.text, button.get_attribute("aria-expanded")) == ("Close all blocks", "true")
    button.click()
    assert plain.run("return [...document.querySelectorAll('.strip details')].some((f) => f.open)") is False
    assert (button.text, button.get_attribute("aria-expanded")) == ("Open all blocks", "false")


def test_folds_open_without_script(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(pages["plain"])
        assert not any(one.is_displayed() for one in browser.all(".needs-script"))
        assert len(browser.all(".needs-script")) >= 3
        summary = browser.find(".strip summary .chevron")
        browser.command("Emulation.setScriptExecutionDisabled", value=False)
        browser.click(summary)
        assert browser.find(".strip details").get_attribute("open") is not None
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)


def reach(browser: Browser, wanted: str, most: int = 300) -> int:
    """Presses Tab until an expression is true; the number of presses."""
    for number in range(most):
        if browser.run(f"return Boolean({wanted})"):
            return number
        browser.press(TAB)
    raise AssertionError(f"{most} times Tab did not reach {wanted}")


def test_everything_is_reached_by_tab_and_shows_its_focus(plain: Browser) -> None:
    wanted = plain.run("""
        const seen = (one) => one.checkVisibility() && !one.closest('details:not([open]) > :not(summary)');
        const all = [...document.querySelectorAll('a[href], button, input, summary, [tabindex="0"]')].filter(seen);
        all.forEach((one, i) => { one.dataset.tab = i; });
        return all.length;
    """)
    reached = []
    for _ in range(wanted):
        plain.press(TAB)
        reached.append(plain.run("""
            const one = document.activeElement, style = getComputedStyle(one);
            const box = one.getBoundingClientRect();
            return [Number(one.dataset.tab), style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2, box.width > 0 && box.height > 0];
        """))
    assert [number for number, _, _ in reached] == list(range(wanted)), "in the order of the page, none twice, no trap"
    assert all(outlined for _, outlined, _ in reached) and all(size for _, _, size in reached)


def column(browser: Browser, key: str) -> list[str]:
    return browser.run("""
        const table = document.querySelector('table.data'), at = [...table.tHead.rows[0].cells].findIndex((c) => c.dataset.key === arguments[0]);
        return [...table.tBodies[0].rows].filter((r) => r.checkVisibility()).map((r) => r.cells[at].textContent.trim());
    """, key)


SORTS = "return [...document.querySelectorAll('th')].filter((t) => t.getAttribute('aria-sort') !== 'none').map((t) => [t.dataset.key, t.ariaSort])"


def test_the_table_is_sorted_by_keyboard(plain: Browser) -> None:
    assert plain.run(SORTS) == [["site", "ascending"]]
    before = column(plain, "site")
    reach(plain, "document.activeElement.closest('th')?.dataset.key === 'site'")
    plain.press(ENTER)
    assert plain.run(SORTS) == [["site", "descending"]] and column(plain, "site") == before[::-1]
    reach(plain, "document.activeElement.closest('th')?.dataset.key === 'module'")
    plain.press(SPACE)
    assert plain.run(SORTS) == [["module", "ascending"]]
    modules = column(plain, "module")
    assert modules == [f"net.layers.{n // 2}" for n in range(24)], "layers.10 after layers.9"
    plain.press(SPACE)
    assert plain.run(SORTS) == [["module", "descending"]] and column(plain, "module") == modules[::-1]
    assert plain.find("#said").get_attribute("textContent") == "Sorted by Module, descending"
    reach(plain, "document.activeElement.closest('th')?.dataset.key === 'findings'")
    plain.press(ENTER)
    found = column(plain, "findings")
    assert found == sorted(found, key=lambda text: text == "") and found.count("") == 12, "empty cells last"
    plain.click(plain.find("th[data-key=layer] button"))
    assert plain.run(SORTS) == [["layer", "ascending"]] and column(plain, "layer") == [str(n // 2) for n in range(24)]


def test_the_table_is_filtered(plain: Browser) -> None:
    reach(plain, "document.activeElement.matches('input[type=search]')")
    plain.press("self_attention LAYERS.1")
    assert column(plain, "module") == ["net.layers.1", "net.layers.10", "net.layers.11"]
    assert plain.find("output").text == "3 of 24 rows"
    plain.run("const i = document.querySelector('input'); i.value = ''; i.dispatchEvent(new Event('input'))")
    assert len(column(plain, "module")) == 24 and plain.find("output").text == "24 rows"
    plain.press("no such row")
    assert column(plain, "module") == [] and plain.find("output").text == "0 of 24 rows"


@pytest.fixture
def copied(browser: Browser, pages: dict[str, pathlib.Path]) -> Any:
    """Presses one of the copy buttons of a page and gives the clipboard's text."""
    browser.command("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])

    def copy(page: str, form: str) -> str:
        browser.open(pages[page])
        browser.driver.switch_to.window(browser.driver.current_window_handle)
        browser.run("document.querySelector(arguments[0]).focus()", f"[data-copy={form}]")
        browser.press(ENTER)
        text: str = browser.driver.execute_async_script(
            "const done = arguments[0]; setTimeout(() => navigator.clipboard.readText().then(done, (e) => done(String(e))), 100)")
        return text

    return copy


def test_copies_of_the_table(copied: Any, browser: Browser) -> None:
    rows = json.loads(copied("plain", "json"))
    assert len(rows) == 24 and rows[2] == {
        "site": 2, "layer": 1, "module": "net.layers.1", "branch": "self_attention", "computed_by": "attn", "placement": "pre", "norm": "LayerNorm",
        "shortcut": "identity", "gain": 1, "findings": "SKW201", "source": rows[2]["source"]}
    assert rows[2]["source"].endswith("net.py:9") and rows[3]["findings"] is None
    assert browser.find("[data-copy=json]").text == "Copied" and "24 rows copied as JSON" in browser.find("#said").get_attribute("textContent")
    tsv = copied("plain", "tsv").splitlines()
    assert tsv[0].split("\t") == list(rows[0]) and tsv[3].split("\t")[:4] == ["2", "1", "net.layers.1", "self_attention"] and len(tsv) == 25
    markdown = copied("plain", "markdown").splitlines()
    assert markdown[0].startswith("| # | Layer | Module |") and markdown[1].startswith("| ---: | ---: | --- |") and len(markdown) == 26
    assert "self\\_attention" in markdown[2]


def test_copies_of_hostile_names(copied: Any) -> None:
    rows = json.loads(copied("hostile", "json"))
    assert samples.SCRIPT in {row["module"] for row in rows} and "=HYPERLINK(1)" in {row["module"] for row in rows}
    tsv = [line.split("\t") for line in copied("hostile", "tsv").splitlines()]
    assert len({len(line) for line in tsv}) == 1 and len(tsv) == len(rows) + 1
    assert not any(cell.startswith(("=", "+", "@")) for line in tsv for cell in line) and any("'=HYPERLINK(1)" in line for line in tsv)
    markdown = copied("hostile", "markdown").splitlines()
    assert len(markdown) == len(rows) + 2 and not any("<script" in line.replace("\\<", "") for line in markdown)


PAPER = "const paper = getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number); " \
        "return paper[0] + paper[1] + paper[2] > 384 ? 'light' : 'dark'"


def test_the_theme(plain: Browser, pages: dict[str, pathlib.Path]) -> None:
    assert plain.run(PAPER) == "light" and plain.find("#theme").get_attribute("aria-pressed") == "false"
    plain.media("dark")
    assert plain.run(PAPER) == "dark", "the system's preference is followed until the button is used"
    assert plain.find("#theme").get_attribute("aria-pressed") == "true"
    plain.click(plain.find("#theme"))
    assert plain.run(PAPER) == "light" and plain.find("#theme").get_attribute("aria-pressed") == "false"
    plain.open(pages["plain"], theme="dark")
    assert plain.run(PAPER) == "light", "the choice is kept"
    reach(plain, "document.activeElement.id === 'theme'")
    plain.press(SPACE)
    assert plain.run(PAPER) == "dark" and plain.find("#theme").get_attribute("aria-pressed") == "true"
    plain.media("dark", "print")
    assert plain.run(PAPER.replace("paper[0]", "(paper[3] === 0 ? 999 : 0) + paper[0]")) == "light", "paper is white"
    plain.media("light")


def test_drawing_and_findings_lead_to_each_other(plain: Browser) -> None:
    flag = plain.find("a.flag.error")
    target = flag.get_attribute("hash")[1:]
    plain.click(flag)
    assert plain.run("return document.activeElement.id") == target and plain.find(f"#{target}").get_attribute("class") == "card error"
    back = plain.find(f"#{target} .links a[href^='#at-']")
    strip = back.get_attribute("hash")[1:]
    plain.click(back)
    assert plain.run("return document.activeElement.id") == strip
    box = plain.run("const b = document.activeElement.getBoundingClientRect(); return [b.top, b.bottom, innerHeight]")
    assert box[0] >= 40 and box[0] < box[2], "it is on the screen, not under the bar"


def test_a_badge_leads_to_its_finding_and_opens_no_fold(plain: Browser) -> None:
    badge = plain.find(".strip summary [data-finding]")
    plain.click(badge)
    assert plain.run("return document.activeElement.dataset.of.split(' ').includes(arguments[0].dataset.finding)", badge)
    assert plain.run(FOLDED)[0] is False
    plain.click(badge)
    assert plain.run("return document.activeElement.className") == "card error", "once more, with the address already there"


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_is_wider_than_the_window(name: str, width: int, browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.open(pages[name], width=width)
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    wide = browser.run("""
        const out = (e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll, .drawing, nav, .hidden');
        return [document.documentElement.scrollWidth, innerWidth, ...[...document.querySelectorAll('main *')].filter(out).map((e) => e.outerHTML)];
    """)
    assert wide == [width, width]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing_serious(theme: str, width: int, browser: Browser, pages: dict[str, pathlib.Path], axe: str) -> None:
    for name in ("plain", "clean", "hostile", "empty"):
        browser.open(pages[name], width=width, theme=theme)
        browser.run("localStorage.clear(); delete document.documentElement.dataset.theme")
        browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert browser.run(PAPER) == theme
        assert (name, browser.violations(axe)) == (name, [])


@pytest.mark.parametrize(("old", "new", "seen"), [
    ("--soft: light-dark(#5a626e", "--soft: light-dark(#b5bac2", "color-contrast"),
    ("--error: light-dark(#b3261e", "--error: light-dark(#f5b8b3", "color-contrast"),
    ("<html lang=\"en\">", "<html>", "html-has-lang"),
    ("<nav aria-label=\"Sections\">", "<nav aria-hidden=\"true\">", "aria-hidden-focus"),
    ("aria-label=\"Dark theme\" aria-pressed=\"false\" title=\"Switch between light and dark\"", "", "button-name"),
])
def test_axe_sees_what_is_planted(old: str, new: str, seen: str, browser: Browser, pages: dict[str, pathlib.Path], axe: str) -> None:
    text = pages["plain"].read_text(encoding="utf-8")
    path = plant(pages, old, new)
    path.write_text(path.read_text(encoding="utf-8").replace("http-equiv=\"Content-Security-Policy\"", "name=\"none\""), encoding="utf-8")
    assert text.count(old) == 1
    browser.open(path)
    browser.run("localStorage.clear(); delete document.documentElement.dataset.theme")
    assert any(seen in one for one in browser.violations(axe))


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures(width: int, theme: str, browser: Browser, pages: dict[str, pathlib.Path], tmp_path: pathlib.Path) -> None:
    browser.open(pages["plain"], width=width, theme=theme)
    browser.run("localStorage.clear(); delete document.documentElement.dataset.theme")
    wide, high = browser.picture(tmp_path / f"report-{width}-{theme}.png")
    assert wide == width and high > 1000


def test_on_paper(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.open(pages["plain"])
    browser.media("light", "print")
    assert not any(one.is_displayed() for one in browser.all(".bar, .tools, .needs-script"))
    scroll = "const s = document.querySelector('.scroll'); return [s.scrollHeight === s.clientHeight, getComputedStyle(s).maxHeight]"
    assert browser.run(scroll) == [True, "none"]
    browser.command("Emulation.setDeviceMetricsOverride", width=720, height=1000, deviceScaleFactor=1, mobile=False)
    assert browser.run("return document.documentElement.scrollWidth") == 720, "a page of A4 holds it"
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("return [...document.querySelectorAll('details.about, details.all')].every((one) => one.open)")
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert not browser.run("return [...document.querySelectorAll('details.about, details.all')].some((one) => one.open)")
    assert len(browser.command("Page.printToPDF", printBackground=True)["data"]) > 20_000
    browser.media("light")
