"""A headless Chromium that reaches nothing outside, and axe-core; both skip with a reason on a machine that lacks them, and fail where CI is set."""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

AXE = "axe-core@4.14.1"
DEAD = "127.0.0.1:9"            # nothing listens on the port "discard"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def missing(what: str) -> NoReturn:
    """Skips, with what to do; where CI is set a missing browser is a failure, so that it never goes unnoticed."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(what)


class Browser:
    """Chromium by way of selenium, with what it logged and asked for."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str | pathlib.Path, width: int = 1280, theme: str = "light", height: int = 900) -> None:
        """A page at a window's width, in the colours that the system prefers, from a clean log."""
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.media(theme)
        self.driver.get("about:blank")
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)
        self.driver.get(address.as_uri() if isinstance(address, pathlib.Path) else address)

    def media(self, theme: str = "light", media: str = "") -> None:
        self.command("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": theme}])

    def command(self, name: str, **arguments: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, arguments)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def press(self, *keys: str) -> None:
        """Keys to whatever has the focus."""
        from selenium.webdriver import ActionChains
        ActionChains(self.driver).send_keys(*keys).perform()

    def click(self, element: Any) -> None:
        """A click of the mouse in the middle of the element, scrolled into view."""
        from selenium.webdriver import ActionChains
        self.run("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", element)
        ActionChains(self.driver).move_to_element(element).click().perform()

    def said(self) -> list[str]:
        """What the browser's console was told: errors, warnings and all else."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]

    def asked(self) -> list[str]:
        """The addresses of all requests since `open`, the page's own first."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def picture(self, path: pathlib.Path) -> tuple[int, int]:
        """The whole page as a PNG file; its width and height."""
        data = base64.b64decode(self.command("Page.captureScreenshot", captureBeyondViewport=True)["data"])
        path.write_bytes(data)
        return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")

    def violations(self, axe: str) -> list[str]:
        """What axe-core finds of impact serious or critical: the rule and the first elements."""
        self.run(axe)
        found = self.driver.execute_async_script("const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then(done)")
        return [f"{v['impact']} {v['id']}: {[n['html'][:120] for n in v['nodes'][:3]]}" for v in found["violations"]
                if v["impact"] in ("serious", "critical")]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        missing("selenium is not installed; pip install -e '.[test]'")
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        missing("no Chromium with its chromedriver on PATH; on Debian: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                 "--hide-scrollbars", f"--proxy-server={DEAD}", f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        arguments.append("--no-sandbox")        # Chromium's sandbox refuses to run as root
    for argument in arguments:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(driver))
    started.set_script_timeout(60)
    try:
        yield Browser(started)
    finally:
        started.quit()


@pytest.fixture(scope="session")
def axe(request: pytest.FixtureRequest) -> str:
    """The text of axe-core, which npm installs into pytest's cache once."""
    home = pathlib.Path(request.config.rootpath) / ".pytest_cache" / "d" / AXE
    script = home / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        npm = shutil.which("npm")
        if npm is None:
            missing("axe-core is not here and there is no npm to fetch it with; on Debian: apt-get install npm")
        home.parent.mkdir(parents=True, exist_ok=True)
        fresh = tempfile.mkdtemp(dir=home.parent)
        command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", fresh, AXE]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(fresh)
            missing(f"npm could not install {AXE}: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
        try:
            os.rename(fresh, home)
        except OSError:                         # another worker was faster
            shutil.rmtree(fresh)
    return script.read_text(encoding="utf-8")
