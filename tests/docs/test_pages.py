"""The pages under docs/ say what is so: their files are written, their commands run, and what they print is what the page shows."""

import doctest
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from skipway.cli import app

ROOT = pathlib.Path(__file__).parents[2]
STEP = re.compile(r"^<!-- (file|run): (\S+) -->\n```\w+\n(.*?)^```$", re.M | re.S)
RULES = re.compile(r"\d+ rules ran")           # grows with the package


def steps(page: str) -> list[tuple[str, str, str]]:
    """("file", name, text) and ("run", exit status, command and output) in order."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = STEP.findall(text)
    assert len(found) == text.count("<!-- file: ") + text.count("<!-- run: "), f"{page}: a marker has no fenced block after it"
    return found


def same(shown: str, printed: str) -> bool:
    """Whether what was printed is what the page shows; `...` stands for what differs from machine to machine."""
    a, b = (RULES.sub("N rules ran", text.rstrip("\n")) + "\n" for text in (shown, printed))
    return doctest.OutputChecker().check_output(a, b, doctest.ELLIPSIS)


def follow(page: str, folder: pathlib.Path) -> int:
    """Does what the page says; the number of commands that were run."""
    count = 0
    for kind, name, text in steps(page):
        if kind == "file":
            (folder / name).write_text(text, encoding="utf-8")
            continue
        command, _, shown = text.partition("\n")
        assert command.startswith("$ "), f"{page}: {command!r} starts with no $"
        if "--engine ray" in command:
            pytest.importorskip("ray", reason="the extra ray is not installed")
        status, printed = run(command[2:], folder)
        assert status == int(name), f"{page}: {command}: {printed}"
        if not command.startswith("$ python -m pytest"):
            more = "...\n" if command.startswith("$ skipway compare") else ""          # its progress goes to stderr, which comes last here
            assert same(shown, printed) or same(shown + more, printed), f"{page}: {command} printed\n{printed}"
        count += 1
    return count


def run(command: str, folder: pathlib.Path) -> tuple[int, str]:
    """Exit status and output. skipway's own commands run in this process, which has torch already."""
    words = shlex.split(command)
    if words[0] == "skipway":
        done = CliRunner().invoke(app, words[1:])
        return done.exit_code, done.stdout + done.stderr
    process = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True)
    return process.returncode, process.stdout + process.stderr


@pytest.fixture
def place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """An empty current folder. What is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PATH", f"{pathlib.Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("GITHUB_WORKSPACE", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "commands"), [("configuration.md", 7), ("ci.md", 7)])
def test_the_page_can_be_followed(page: str, commands: int, place: pathlib.Path) -> None:
    assert follow(page, place) == commands


def test_a_page_that_says_what_is_not_so_is_seen(place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "docs").mkdir()
    monkeypatch.setattr(f"{__name__}.ROOT", place)
    for text, part in (("<!-- run: 1 -->\n```console\n$ true\n```\n", "true"), ("<!-- run: 0 -->\n```console\n$ echo a\nb\n```\n", "echo a"),
                       ("<!-- run: 0 -->\nno block\n", "no fenced block")):
        (place / "docs" / "wrong.md").write_text(text)
        with pytest.raises(AssertionError, match=part):
            follow("wrong.md", place)


def test_the_configuration_page_names_every_field() -> None:
    from skipway.checks import config
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([\w-]+)` \|", text, re.M)) == set(config._KNOWN)
    assert all(f"`{name}`" in text for name in config._TARGET)


def test_links_between_pages_lead_somewhere() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        for link in re.findall(r"\]\(([^)#:]+)[^):]*\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
