"""`skipway docs`: serves a built site to this machine alone, and says what to do where there is none."""

import pathlib
import threading
import urllib.request

import pytest
from typer.testing import CliRunner

from skipway.cli import app, docs


@pytest.fixture
def site(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "index.html").write_text("<title>built</title>")
    return tmp_path


def test_it_serves_the_folder_on_the_loopback_address(site: pathlib.Path) -> None:
    with docs.server(site, 0) as serving:
        assert serving.server_address[0] == "127.0.0.1"
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{serving.server_address[1]}/index.html", timeout=10) as answer:
                assert answer.read() == b"<title>built</title>"
        finally:
            serving.shutdown()
            thread.join()


def test_a_port_that_is_taken_is_one_line(site: pathlib.Path) -> None:
    with docs.server(site, 0) as serving:
        port = str(serving.server_address[1])
        done = CliRunner().invoke(app, ["docs", "--site", str(site), "--port", port, "--no-browser"])
    assert done.exit_code == 2 and f"--port {port}: " in done.stderr and "take another" in done.stderr


def test_it_prints_where_the_site_lies(site: pathlib.Path) -> None:
    done = CliRunner().invoke(app, ["docs", "--site", str(site), "--path"])
    assert (done.exit_code, done.stdout.strip()) == (0, str(site.resolve() / "index.html"))


def test_a_browser_is_opened_only_where_it_is_wanted(site: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda where: opened.append(where) or True)

    def stop(self: object) -> None:
        raise KeyboardInterrupt
    monkeypatch.setattr("http.server.ThreadingHTTPServer.serve_forever", stop)
    for extra in ([], ["--no-browser"]):
        done = CliRunner().invoke(app, ["docs", "--site", str(site), *extra])
        assert done.exit_code == 0 and "http://127.0.0.1:" in done.stdout and "Ctrl-C ends it" in done.stdout
    assert len(opened) == 1 and opened[0].startswith("http://127.0.0.1:") and opened[0].endswith("/index.html")


def test_without_a_site_it_says_how_to_build_one(tmp_path: pathlib.Path) -> None:
    done = CliRunner().invoke(app, ["docs", "--site", str(tmp_path)])
    assert done.exit_code == 2 and "no index.html is there" in done.stderr and "python docs/build.py" in done.stderr
