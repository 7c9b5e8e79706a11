"""The page of a probe in a real browser: it asks for nothing, and its charts work with mouse, keyboard and neither."""

import pathlib
from typing import Any

import pytest

from skipway.report import _probe

from ..report import tables
from .conftest import Browser

TAB, ENTER, RIGHT, LEFT, END, ESCAPE = "\ue004", "\ue007", "\ue014", "\ue012", "\ue010", "\ue00c"
MADE = {"with_loss": tables.with_loss, "two_streams": tables.two_streams, "broken": tables.broken, "hostile": tables.hostile}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pathlib.Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, make in MADE.items():
        (folder / f"{name}.html").write_text(str(_probe.render(make(), "html")), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in MADE}


def state(browser: Browser) -> dict[str, Any]:
    """What is chosen: the line above the charts, the readings, and the number of the row that is marked."""
    found: dict[str, Any] = browser.run("""return {
        at: document.getElementById('charts-at').textContent,
        read: Object.fromEntries([...document.querySelectorAll('figure')].map((f) => [f.id, f.querySelector('output').textContent])),
        row: document.querySelector('#sites-table tr.at')?.cells[0].textContent ?? null,
        cursors: [...document.querySelectorAll('.cursor')].map((c) => c.getAttribute('visibility')),
        value: document.querySelector('#chart-influence svg').getAttribute('aria-valuetext')}""")
    return found


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_quiet_asks_for_nothing_and_all_can_read_it(name: str, theme: str, browser: Browser, axe: str, pages: dict[str, pathlib.Path]) -> None:
    browser.open(pages[name], theme=theme)
    assert browser.violations(axe) == []
    assert browser.said() == [] and {address.partition("#")[0] for address in browser.asked()} == {pages[name].as_uri()}
    assert browser.run("return [window.ran, document.images.length, document.scripts.length, document.styleSheets.length]") == [None, 0, 1, 1]


def test_the_arrow_keys_choose_a_site_in_all_charts(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.open(pages["with_loss"])
    assert state(browser)["at"].startswith("Point at a chart") and set(state(browser)["cursors"]) == {"hidden"}
    browser.run("document.querySelector('#chart-influence svg').focus()")
    browser.press(RIGHT, RIGHT)
    now = state(browser)
    assert now["at"] == "Site 1, net.layers.0, ffn" and now["row"] == "1" and set(now["cursors"]) == {"visible"}
    assert (now["read"]["chart-influence"], now["read"]["chart-lesion"]) == ("0.0200", "0.100")
    assert now["read"]["chart-magnitude"] == "stream 3.00, branch 0.500" and now["value"] == "site 1, net.layers.0, ffn: 0.0200"
    browser.press(END)
    assert state(browser)["row"] == "3"
    browser.press(RIGHT, LEFT)
    assert state(browser)["row"] == "2"
    browser.press(ESCAPE)
    assert state(browser)["row"] is None and set(state(browser)["cursors"]) == {"hidden"}


def test_tab_reaches_every_chart_and_enter_shows_the_row(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.open(pages["with_loss"], height=500)
    browser.run("document.querySelector('.drawing').focus()")
    reached = []
    for _ in range(40):
        browser.press(TAB)
        reached.append(browser.run("return document.activeElement.closest('figure')?.id ?? null"))
    wanted = browser.run("return [...document.querySelectorAll('figure')].map((f) => f.id)")
    assert [one for one in reached if one] == wanted
    browser.run("document.querySelector('#chart-influence svg').focus()")
    browser.press(END, ENTER)
    box = browser.run("const b = document.querySelector('#sites-table tr.at').getBoundingClientRect(); return [b.top, innerHeight]")
    assert 0 <= box[0] < box[1]


def test_the_pointer_chooses_the_nearest_site(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    from selenium.webdriver import ActionChains
    browser.open(pages["with_loss"])
    svg = browser.find("#chart-lesion svg")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", svg)
    wide = svg.rect["width"]
    ActionChains(browser.driver).move_to_element_with_offset(svg, int(wide * 0.45), 0).perform()
    assert state(browser)["row"] == "3"


def test_the_marked_row_is_the_sites_after_sorting(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.open(pages["with_loss"])
    browser.run("document.querySelector('#sites-table th[data-key=\"influence\"] button').click();"
                "document.querySelector('#sites-table th[data-key=\"influence\"] button').click()")
    browser.run("document.querySelector('#chart-influence svg').focus()")
    browser.press(RIGHT)
    assert state(browser)["row"] == "0" and browser.run("return document.querySelector('#sites-table tbody').rows[3].classList.contains('at')")


@pytest.mark.parametrize("width", [360, 800, 1280, 1900])
@pytest.mark.parametrize("name", ["with_loss", "hostile"])
def test_nothing_is_wider_than_the_window(name: str, width: int, browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.open(pages[name], width=width)
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    wide = browser.run("return [...document.querySelectorAll('figure')].map((f) => f.getBoundingClientRect().width)")
    assert min(wide) > 0.7 * min(width, 400)


def test_without_a_script_the_charts_are_pictures_with_a_text(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(pages["with_loss"])
        svg = browser.find("#chart-influence svg")
        assert svg.get_attribute("role") == "img"
        assert svg.get_attribute("aria-label") == "Block influence: 1 - cos(stream before, stream after), mean over tokens; from 0.0100 to 0.0400"
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)
