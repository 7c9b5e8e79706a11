"""Annotations: one workflow command a finding, escaped as GitHub unescapes it, and a line of totals."""

import pathlib

import pytest

from skipway.report import render, render_all

from . import records


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    return tmp_path


def lines(*found: records.Finding, **other: object) -> list[str]:
    return render(records.report(*found, **other).to_dict(), "github").splitlines()


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    """A command as the runner reads it."""
    head, _, data = line.removeprefix("::").partition("::")
    name, _, rest = head.partition(" ")
    def plain(text: str) -> str:
        return text.replace("%0D", "\r").replace("%0A", "\n").replace("%3A", ":").replace("%2C", ",").replace("%25", "%")
    given = dict(part.split("=", 1) for part in rest.split(",")) if rest else {}
    return name, {key: plain(value) for key, value in given.items()}, plain(data)


def test_an_annotation(here: pathlib.Path) -> None:
    found = records.finding(file=str(here / "src" / "net.py"), line=7)
    assert lines(found) == ["::error file=src/net.py,line=7,title=SKW101 missing-skip::no path goes around it",
                            "skipway: net.py:Net: 1 error; 1 site on 1 stream; 2 rules ran (stage graph)"]


@pytest.mark.parametrize(("severity", "command"), [("error", "error"), ("warning", "warning"), ("note", "notice")])
def test_commands(severity: str, command: str) -> None:
    assert parsed(lines(records.finding(severity=severity))[0])[0] == command


def test_without_a_file_the_module_is_in_the_message() -> None:
    assert lines(records.finding("head"))[0] == "::error title=SKW101 missing-skip::head: no path goes around it"
    assert lines(records.finding("head", file="/usr/lib/net.py"))[0].startswith("::error file=/usr/lib/net.py,title=")


def test_escapes(here: pathlib.Path) -> None:
    found = records.finding(message="50%: a, b\r\nc::d %0A", file=str(here / "a,b:c%.py"), line=1)
    first = lines(found)[0]
    assert first == "::error file=a%2Cb%3Ac%25.py,line=1,title=SKW101 missing-skip::50%25: a, b  c::d %250A"
    assert parsed(first)[1:] == ({"file": "a,b:c%.py", "line": "1", "title": "SKW101 missing-skip"}, "50%: a, b  c::d %0A")


def test_repeated_blocks_are_one_annotation(here: pathlib.Path) -> None:
    found = [records.finding(f"layers.{n}.ffn", f"layers.{n} has none", file=str(here / "net.py"), line=7) for n in range(4)]
    assert lines(*found)[0].endswith("::layers.0 has none (x4: layers.{0-3}.ffn)") and len(lines(*found)) == 2


def test_the_worst_comes_first() -> None:
    found = [records.finding("a", severity="note"), records.finding("b"), records.finding("c", severity="warning")]
    assert [parsed(line)[0] for line in lines(*found)[:-1]] == ["error", "warning", "notice"]


def test_nothing_found_is_the_line_of_totals() -> None:
    assert lines(suppressed=1) == ["skipway: net.py:Net: no findings; 1 site on 1 stream; 2 rules ran (stage graph); 1 suppressed"]


def test_the_line_of_totals_is_no_command() -> None:
    assert lines(target="::error::x ##[error]y")[0].startswith("skipway: ::error::x ## [error]y: ")


def test_paths_count_from_the_checkout(here: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "models").mkdir()
    monkeypatch.chdir(here / "models")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(here))
    assert "file=models/net.py," in lines(records.finding(file=str(here / "models" / "net.py")))[0]


def test_several_reports() -> None:
    both = [records.report(records.finding()).to_dict(), records.report(target="b.py").to_dict()]
    assert render_all(both, "github") == render(both[0], "github") + render(both[1], "github")
