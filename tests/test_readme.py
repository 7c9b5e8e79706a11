"""The README's commands are there, and `.ci/run` takes its test command from it word for word."""

import os
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(marker: str) -> str:
    """The fenced block right after an HTML comment."""
    found = re.search(rf"^<!-- {marker} -->\n```\w*\n(.*?)^```$", README, re.M | re.S)
    assert found, f"README.md has no fenced block after <!-- {marker} -->"
    return found[1]


def test_the_first_screen_has_both_commands() -> None:
    first = block("first-command")
    assert first.splitlines()[-1] == "skipway check hf:llama" and "pip install -e '.[hf,lab]'" in first
    assert README[:README.index(block("test-command"))].count("\n") < 30


def test_ci_runs_the_readmes_test_command() -> None:
    printed = subprocess.run(["bash", str(ROOT / ".ci" / "run"), "--print-test-command"], capture_output=True, text=True, check=True).stdout
    assert printed == block("test-command")
    assert "pip install -c constraints.txt -e '.[all,test]'" in printed and "pytest" in printed


def test_everything_that_the_test_extra_names_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {re.split("==", line)[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["hf"], *extras["vision"], *extras["gguf"], *extras["plot"], *extras["docs"],
              *(w for w in extras["test"] if not w.startswith("skipway["))]
    assert {re.split(r"[<>=\[ ]", w)[0].lower() for w in wanted} <= pinned


def test_it_says_that_code_is_run() -> None:
    assert "Checking runs the target's own Python code, as a test runner does" in README


def test_generated_pages_are_current() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_example_output_is_what_the_example_prints(tmp_path: pathlib.Path) -> None:
    source = re.search(r"```python\n(# block\.py\n.*?)```", README, re.DOTALL)
    shown = re.search(r"<!-- example-output -->\n```text\n(.*?)\n```", README, re.DOTALL)
    assert source is not None and shown is not None
    (tmp_path / "block.py").write_text(source.group(1), encoding="utf-8")
    command = [sys.executable, "-m", "skipway", "check", "block.py:Block", "--input", "float32[2,16,64]"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    assert (done.returncode, done.stdout.rstrip()) == (1, shown.group(1))


def test_the_python_examples_run() -> None:
    done = subprocess.run([sys.executable, "-c", block("runs")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "'mhc'" in done.stdout and "3 of 12" in done.stdout
