"""The report of a comparison in a real browser: it asks for nothing, shows its verdict, and its figures work with mouse, keyboard and neither."""

import json
import pathlib
from typing import Any

import pytest

from skipway.report._compare import html

from ..report import studies
from .conftest import Browser

TAB, ENTER, SPACE, RIGHT, END, ESCAPE = "\ue004", "\ue007", " ", "\ue014", "\ue010", "\ue00c"
MADE = {"small": studies.small, "large": studies.large, "grouped": studies.grouped, "bare": studies.bare, "hostile": studies.hostile,
        "claimed": studies.claimed}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pathlib.Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, make in MADE.items():
        (folder / f"{name}.html").write_text(html.render(make()), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in MADE}


@pytest.mark.parametrize(("name", "width", "theme"), [
    ("small", 360, "dark"), ("large", 1280, "light"), ("grouped", 1280, "dark"), ("bare", 360, "light"), ("hostile", 1280, "light"),
    ("hostile", 360, "dark"), ("claimed", 360, "light")])
def test_it_is_quiet_asks_for_nothing_and_all_can_read_it(
    name: str, width: int, theme: str, browser: Browser, axe: str, pages: dict[str, pathlib.Path], tmp_path: pathlib.Path,
) -> None:
    browser.open(pages[name], width=width, theme=theme)
    browser.run("""
        document.querySelectorAll('details').forEach((one) => { one.open = true; });
        document.querySelectorAll('button:not(#theme)').forEach((one) => { one.click(); one.click(); });
        document.querySelectorAll('svg[role=slider]').forEach((one) => one.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'})));
    """)
    assert browser.violations(axe) == []
    assert browser.said() == [] and {address.partition("#")[0] for address in browser.asked()} == {pages[name].as_uri()}
    assert browser.run("return [window.ran, document.images.length, document.scripts.length, document.styleSheets.length]") == [None, 0, 1, 1]
    wide = browser.run("""
        const out = (e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll, .drawing, nav, .hidden');
        return [document.documentElement.scrollWidth, ...[...document.querySelectorAll('main *')].filter(out).map((e) => e.outerHTML.slice(0, 200))];
    """)
    assert wide == [width]
    assert browser.picture(tmp_path / "page.png")[0] == width


def test_the_verdict_is_on_the_first_screen(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.open(pages["large"])
    found = browser.run("""
        const box = (e) => e.getBoundingClientRect();
        const row = document.querySelector('#verdicts-table tbody tr');
        return [document.querySelector('.verdict').innerText, [...row.cells].slice(1, 4).map((c) => c.innerText), box(row).bottom < innerHeight,
                row.className, document.querySelector('.sentence').innerText];
    """)
    sentence = studies.large()["comparisons"][0]["sentence"]
    assert " ".join(found[0].split()) == "1 worse, 10 no difference shown beside pre_norm"
    assert found[1:4] == [["worse", "none:normed=true", "pre_norm"], True, "error"] and " ".join(found[4].split()) == f"Worse {sentence}"


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_names_in_a_legend_are_whole_with_their_values(browser: Browser, pages: dict[str, pathlib.Path], width: int) -> None:
    browser.open(pages["small"], width=width)
    broken = browser.run("""
        document.querySelectorAll('svg[role=slider]').forEach((one) => one.dispatchEvent(new KeyboardEvent('keydown', {key: 'End'})));
        const cut = (e) => e.scrollWidth > e.clientWidth + 1 || e.getClientRects().length > 1 || e.offsetHeight > 30;
        return [...document.querySelectorAll('.legend .who')].filter(cut).map((e) => e.outerHTML);
    """)
    assert broken == []


def reading(browser: Browser, figure: str) -> dict[str, Any]:
    found: dict[str, Any] = browser.run("""
        const figure = document.getElementById(arguments[0]), svg = figure.querySelector('svg.chart');
        return {place: figure.querySelector('.place').textContent, now: svg.getAttribute('aria-valuenow'),
                text: svg.getAttribute('aria-valuetext'), cursor: figure.querySelector('.cursor').getAttribute('visibility'),
                values: [...figure.querySelectorAll('.value')].map((v) => v.textContent)}
    """, figure)
    return found


def test_the_arrow_keys_read_a_curve(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.open(pages["small"])
    assert reading(browser, "figure-held_out") == {"place": "", "now": "0", "text": "no place is chosen", "cursor": "hidden", "values": ["", ""]}
    browser.run("document.querySelector('#figure-held_out svg.chart').focus()")
    browser.press(END)
    now = reading(browser, "figure-held_out")
    means = [s["loss"]["mean"] for s in studies.small()["summary"]]
    assert now["place"] == "step 500" and now["cursor"] == "visible" and now["now"] == "25"
    assert [float(v) for v in now["values"]] == pytest.approx(means, rel=1e-3)
    assert now["text"] == f"step 500: none:normed=true {now['values'][0]}, pre_norm {now['values'][1]}"
    browser.press(ESCAPE)
    assert reading(browser, "figure-held_out")["cursor"] == "hidden" and reading(browser, "figure-train")["place"] == ""
    browser.press(RIGHT, ENTER)
    assert browser.run("return document.querySelector('#curves details.numbers').open"), "Enter opens the numbers"


def test_the_pointer_reads_the_nearest_place(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    from selenium.webdriver import ActionChains
    browser.open(pages["small"])
    svg = browser.find("#figure-rates svg.chart")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", svg)
    ActionChains(browser.driver).move_to_element_with_offset(svg, int(svg.rect["width"] * 0.45), 0).perform()
    assert reading(browser, "figure-rates")["place"] == "learning rate 0.003"


def test_the_boxes_choose_the_variants_by_keyboard(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.open(pages["grouped"])
    both = "return ['held_out-1', 'held_out-2'].map((f) => [...document.querySelectorAll(`#figure-${f} g[data-arm]`)].filter((g) => " \
           "getComputedStyle(g).display !== 'none').map((g) => Number(g.dataset.arm)).sort())"
    assert browser.run(both) == [[0, 1], [2, 3]]
    browser.run("document.querySelector('.arms input[data-arm=\"2\"]').focus()")
    browser.press(SPACE)
    assert browser.run(both) == [[0, 1], [3]]
    browser.press(TAB, TAB, ENTER)
    assert browser.run(both) == [[], []] and browser.find("[data-arms]").text == "Show all"
    browser.press(ENTER)
    assert browser.run(both) == [[0, 1], [2, 3]]


def test_tables_are_copied(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.command("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.open(pages["small"])
    browser.run("document.querySelector('.tools[data-for=verdicts-table] [data-copy=json]').focus()")
    browser.press(ENTER)
    text = browser.driver.execute_async_script(
        "const done = arguments[0]; setTimeout(() => navigator.clipboard.readText().then(done, (e) => done(String(e))), 100)")
    (row,) = json.loads(text)
    d = studies.small()["comparisons"][0]["difference"]
    assert (row["verdict"], row["variant"]) == ("worse", "pre_norm") and row["mean"] == pytest.approx(d["mean"], rel=1e-5)


def test_without_a_script_all_is_there(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(pages["small"])
        assert not any(one.is_displayed() for one in browser.all(".needs-script")) and browser.find("#verdicts-table").is_displayed()
        svg = browser.find("#figure-held_out svg.chart")
        assert svg.get_attribute("role") == "img" and "pre_norm from 2.99 at step 0 to 1.12 at 500" in str(svg.get_attribute("aria-label"))
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)
