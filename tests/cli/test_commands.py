"""The other commands, and the script as a process of its own."""

import json
import pathlib
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from skipway import _registry
from skipway.cli import app
from skipway.cli._pages import SECTIONS, examples, pages, parse

DATA = pathlib.Path(__file__).parents[1] / "data"
KNOWN = _registry.names("skipway.rules")


def skipway(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "skipway", *arguments], capture_output=True, text=True, cwd=DATA)


def test_rules_lists_every_rule() -> None:
    done = CliRunner().invoke(app, ["rules"])
    lines = done.stdout.splitlines()
    assert done.exit_code == 0 and {line.split()[3] for line in lines} == set(KNOWN)
    assert [line.split()[0] for line in lines] == sorted(line.split()[0] for line in lines)
    listed = json.loads(CliRunner().invoke(app, ["rules", "--json"]).stdout)
    assert [one["code"] for one in listed] == [line.split()[0] for line in lines]
    assert all(set(one["sections"]) == set(SECTIONS) for one in listed)


@pytest.mark.parametrize("slug", KNOWN)
def test_explain(slug: str) -> None:
    by_name = CliRunner().invoke(app, ["explain", slug])
    code = by_name.stdout.split()[0]
    assert by_name.exit_code == 0 and re.fullmatch(r"SKW\d{3}", code)
    assert CliRunner().invoke(app, ["explain", code.lower()]).stdout == by_name.stdout
    assert all(f"\n{title}\n" in by_name.stdout for title in SECTIONS)
    assert "def bad(" in by_name.stdout and "def good(" in by_name.stdout


@pytest.mark.parametrize("text", ["SKW999", "missing-skp", ""])
def test_explain_an_unknown_rule(text: str) -> None:
    done = CliRunner().invoke(app, ["explain", text])
    assert (done.exit_code, done.stdout) == (2, "") and done.stderr.count("\n") == 1 and f"got {text!r}" in done.stderr
    assert text != "missing-skp" or "near it: missing-skip" in done.stderr


def test_a_docstring_without_a_section_is_an_error() -> None:
    with pytest.raises(ValueError, match="its docstring lacks Fires on"):
        parse("x: one.\n\nWhat it does\n    a\nWhy it matters\n    b\nQuiet on\n    c\nWhat to do\n    d\n", "x")


def test_examples_are_cut_out_of_their_module() -> None:
    module = _registry.load("skipway.rules", "self-add")
    bad, good, shared = examples(module)
    assert bad.startswith("def bad(") and good.startswith("def good(") and "def _example(" in shared and "def bad" not in good + shared
    assert len(pages()) == len(KNOWN)


def test_version_and_help_as_a_process() -> None:
    assert re.fullmatch(r"skipway \d+\.\d+\.\d+\n", skipway("--version").stdout)
    told = skipway("--help")
    assert told.returncode == 0 and all(name in told.stdout for name in _registry.names("skipway.cli"))


def test_the_help_cuts_nothing_short() -> None:
    told = CliRunner().invoke(app, ["--help"], terminal_width=80).stdout
    assert "..." not in told.partition("Commands:")[2] and "\u2026" not in told and max(map(len, told.splitlines())) <= 80


@pytest.mark.parametrize("option", ["seeds N", "steps N", "depth N[,N...]", "width N[,N...]", "lr X[,X...]"])
def test_the_help_of_compare_says_what_an_option_takes(option: str) -> None:
    told = CliRunner().invoke(app, ["compare", "--help"], terminal_width=100).stdout
    assert f"--{option} " in told and "--debug" in told and "<str>" not in told.partition("Options:")[2]


def test_a_bad_target_as_a_process() -> None:
    done = skipway("check", "raises.py:net")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == ("skipway: error: raises.py:3: raises.py cannot be imported: RuntimeError: broken on; "
                           "correct it, or see --debug for the traceback\n")
