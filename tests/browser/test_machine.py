"""A machine without a browser: the tests skip with what to do and fail where CI is set; the step of the CI never stops the run."""

import os
import pathlib
import shutil
import subprocess

import pytest

from .conftest import missing

STEP = pathlib.Path(__file__).parents[2] / ".ci" / "browser"


def test_a_missing_browser_skips_and_fails_where_ci_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="do this"):
        missing("do this")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="do this"):
        missing("do this")


@pytest.fixture
def step(tmp_path: pathlib.Path) -> tuple[pathlib.Path, dict[str, str]]:
    """A PATH with bash and nothing that could be installed or install."""
    if not STEP.exists():
        pytest.skip(".ci/browser is not part of this copy of the source")
    for name in ("bash", "env", "sleep"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    return tmp_path, {**os.environ, "PATH": str(tmp_path)}


def command(folder: pathlib.Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def run(step: tuple[pathlib.Path, dict[str, str]]) -> tuple[int, str, str]:
    done = subprocess.run([str(step[0] / "bash"), str(STEP)], env=step[1], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_the_step_without_apt(step: tuple[pathlib.Path, dict[str, str]]) -> None:
    status, out, _ = run(step)
    assert status == 0 and out.startswith("missing: chromium chromium-driver npm; install them by hand to run tests/browser")


def test_the_step_without_root(step: tuple[pathlib.Path, dict[str, str]]) -> None:
    command(step[0], "id", "echo 1000")
    command(step[0], "apt-get", "echo called; exit 1")
    status, out, _ = run(step)
    assert status == 0 and out.startswith("missing: ") and "called" not in out


def test_the_step_installs_what_is_missing(step: tuple[pathlib.Path, dict[str, str]]) -> None:
    command(step[0], "id", "echo 0")
    command(step[0], "npm", "exit 0")
    command(step[0], "apt-get", f'echo "$@" >> {step[0]}/asked')
    assert run(step)[:2] == (0, "installed: chromium chromium-driver\n")
    asked = (step[0] / "asked").read_text()
    assert "update" in asked and "install --no-install-recommends chromium chromium-driver" in asked


def test_the_step_goes_on_where_apt_fails(step: tuple[pathlib.Path, dict[str, str]]) -> None:
    command(step[0], "id", "echo 0")
    command(step[0], "apt-get", "exit 100")
    (step[0] / "sleep").unlink()
    command(step[0], "sleep", "exit 0")
    assert run(step) == (0, "", "apt-get could not install chromium chromium-driver npm\n")


def test_the_step_where_all_is_here(step: tuple[pathlib.Path, dict[str, str]]) -> None:
    for name in ("chromium-browser", "chromedriver", "npm"):
        command(step[0], name, "exit 0")
    assert run(step) == (0, "the browser is here\n", "")
