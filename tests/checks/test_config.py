"""[tool.skipway] of the nearest pyproject.toml: what it may hold, and what the command line makes of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from skipway._errors import UsageError
from skipway.checks.config import Config, Declared, left_out, read
from skipway.checks.records import Finding

BLOCK = '''
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.mix = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
        self.ffn = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x):
        x = x + self.mix(self.norm1(x))
        return self.ffn(self.norm2(x))  # {comment}
'''


def write(folder: Path, text: str, comment: str = "no skip") -> None:
    (folder / "pyproject.toml").write_text(text)
    (folder / "block.py").write_text(BLOCK.format(comment=comment))


def status(folder: Path, *options: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "skipway", "check", "block.py:Block", "--input", "float32[2,4,8]", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    return done.returncode, done.stdout + done.stderr


def test_nothing_declared_is_the_empty_configuration(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert read(tmp_path) == read(tmp_path / "nowhere") or read(tmp_path) == Config()


def test_the_nearest_file_with_the_table_counts(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.skipway]\nignore = ['SKW307']\n")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert read(inner).ignore == ("SKW307",)


@pytest.mark.parametrize(("text", "told"), [
    ("[tool.skipway]\nselekt = []\n", "'selekt'; want select, ignore, expect, per-file"),
    ("[tool.skipway]\nignore = 'SKW101'\n", "ignore is 'SKW101'; want a list"),
    ("[tool.skipway.expect]\nplace = 'pre'\n", "expect has a field 'place'; want placement"),
    ("[tool.skipway]\nper-file = []\n", "per-file is []; want a table"),
    ("[tool.skipway\n", "mend the file"),
    ("[tool]\nskipway = 3\n", "[tool.skipway] is 3; want a table"),
    ("[tool.skipway]\ntargets = 'net.py:Net'\n", "targets is 'net.py:Net'; want a list"),
    ("[tool.skipway]\ntargets = [3]\n", "targets[0] is 3; want a target such as \"path/file.py:attr\""),
    ("[tool.skipway]\ntargets = ['a.py', { input = ['x'] }]\n", "targets[1] is {'input': ['x']}; want a target"),
    ("[tool.skipway]\ntargets = [{ target = 'a.py', stage = 'x' }]\n", "targets[0] has a field 'stage'; want target, input, inputs, config"),
    ("[tool.skipway]\ntargets = [{ target = 'a.py', input = 'float32[2]' }]\n", "targets[0] input is 'float32[2]'; want a list of texts"),
    ("[tool.skipway]\ntargets = [{ target = 'a.py', inputs = ['a'] }]\n", "targets[0] inputs is ['a']; want"),
    ("[tool.skipway]\ntargets = [{ target = 'a.py', expect = { place = 1 } }]\n", "targets[0] expect has a field 'place'"),
    ("[tool.skipway.expect]\nparallel = 'yes'\n", "expect parallel is 'yes'; want true or false"),
    ("[tool.skipway.expect]\nskip_scale = true\n", "expect skip_scale is True; want a number"),
    ("[tool.skipway.expect]\nbranch_init = true\n", "expect branch_init is True; want a text or a number"),
    ("[tool.skipway.expect]\nplacement = 'side'\n", "placement='side'"),
])
def test_what_it_does_not_know_is_an_error_that_names_file_and_field(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        read(tmp_path)
    assert str(tmp_path / "pyproject.toml") in str(caught.value)
    assert told in str(caught.value)


def test_targets(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.skipway]\ntargets = ['a.py', { target = 'b.py:B', input = ['float32[2]'], inputs = 'b.py:f', "
                                             "config = ['k=1'], expect = { placement = 'pre' } }]\n")
    assert read(tmp_path).targets == (Declared("a.py"), Declared("b.py:B", ("float32[2]",), "b.py:f", ("k=1",), {"placement": "pre"}))


@pytest.mark.parametrize(("pattern", "codes", "out"), [
    ("old/*.py", ("SKW101",), True), ("old/*", ("SKW1",), True), ("old/*", ("missing-skip",), True),
    ("old/*", ("SKW2",), False), ("new/*", ("SKW101",), False)])
def test_per_file_takes_codes_prefixes_and_slugs(pattern: str, codes: tuple[str, ...], out: bool) -> None:
    finding = Finding("SKW101", "missing-skip", "error", "ffn", "...", "/p/old/net.py", 3)
    assert left_out(finding, {pattern: codes}, "/p") is out


def test_the_command_line_reads_it(tmp_path: Path) -> None:
    write(tmp_path, "[tool.skipway]\n")
    code, text = status(tmp_path)
    assert code == 1
    assert "block.py:14: SKW101 missing-skip" in text
    for table in ("ignore = ['SKW101']", "select = ['SKW2']", "per-file = { 'block.py' = ['missing-skip'] }"):
        write(tmp_path, f"[tool.skipway]\n{table}\n")
        code, text = status(tmp_path)
        assert (code, "SKW101" in text) == (0, False), table


def test_a_comment_on_the_line_takes_the_finding_out(tmp_path: Path) -> None:
    write(tmp_path, "[tool.skipway]\n", "skipway: ignore[SKW101]")
    assert status(tmp_path)[0] == 0
    write(tmp_path, "[tool.skipway]\n", "skipway: ignore[SKW102]")
    assert status(tmp_path)[0] == 1


def test_expect_of_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    write(tmp_path, "[tool.skipway.expect]\nplacement = 'post'\n", "skipway: ignore[SKW101]")
    assert "SKW202" in status(tmp_path)[1]
    assert "SKW202" not in status(tmp_path, "--expect", "placement=pre")[1]
