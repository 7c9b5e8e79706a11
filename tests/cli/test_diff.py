"""`skipway diff`: real models and files side by side."""

import json
import os
import pathlib
import re
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from skipway.cli import app

from ..report import records

SOURCE = '''
import torch
import torch.nn as nn

class Layer(nn.Module):
    def __init__(self, dim=16, pre=True, skip=True):
        super().__init__()
        self.pre, self.skip = pre, skip
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))

    def forward(self, x):
        if self.pre:
            y = self.norm1(x)
            x = x + self.attn(y, y, y)[0]
            y = self.ffn(self.norm2(x))
            return x + y if self.skip else y
        x = self.norm1(x + self.attn(x, x, x)[0])
        return self.norm2(x + self.ffn(x))

class Original(nn.Module):
    def __init__(self, depth=4, last=True, without=None, pre=True):
        super().__init__()
        self.layers = nn.ModuleList(Layer(pre=pre, skip=n != without) for n in range(depth))
        self.last = nn.LayerNorm(16) if last else nn.Identity()
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(self.last(x))

class Port(nn.Module):
    """The same under other names."""
    def __init__(self):
        super().__init__()
        self.h = nn.Sequential(*(Layer() for _ in range(4)))
        self.ln_f = nn.LayerNorm(16)

    def forward(self, hidden):
        return self.ln_f(self.h(hidden))

def post():
    return Original(pre=False, last=False)

def deeper():
    return Original(depth=6)

def left_out():
    return Original(without=2)

def plain():
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))

example_inputs = torch.randn(2, 6, 16)
'''


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "nets.py").write_text(SOURCE)
    (tmp_path / "report.json").write_text(json.dumps(records.report().to_dict()))
    (tmp_path / "wiring.json").write_text(json.dumps(records.report().to_dict()["wiring"]))
    return tmp_path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["diff", *arguments])


def rows(done: Any) -> list[str]:
    """The lines below the head."""
    return [line for line in done.stdout.split("\n\n", 1)[1].splitlines() if line]


def test_a_port_under_other_names_is_equal() -> None:
    done = run("nets.py:Original", "nets.py:Port")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == ("A  nets.py:Original  Original  9 K parameters  8 sites on 1 stream\n"
                           "B  nets.py:Port      Port  8.93 K parameters  8 sites on 1 stream\n\n"
                           "no difference; 8 sites on 1 stream compared\n")
    named = run("nets.py:Original", "nets.py:Port", "--names")
    assert named.exit_code == 1
    assert rows(named)[:3] == ["stream layers", "  name: h, was layers", "  final norm: ln_f, was last"]
    assert rows(named)[3].startswith("  x4    layers.{0-3} -> h.{0-3}  self_attention: module h.#, was layers.#; norms h.#.norm1, was")
    assert rows(named)[-1] == "8 sites and 2 other facts differ"


def test_another_placement_is_folded_over_the_blocks() -> None:
    done = run("nets.py:Original", "nets.py:post")
    assert done.exit_code == 1
    assert rows(done) == ["stream layers", "  final norm: none, was present", "  x4    layers.{0-3}  self_attention: placement post, was pre",
                          "  x4    layers.{0-3}  ffn: placement post, was pre", "8 sites and 1 other fact differ"]
    assert rows(run("nets.py:post", "nets.py:Port"))[2] == "  x4    layers.{0-3} -> h.{0-3}  self_attention: placement pre, was post"


def test_sites_of_one_side_only() -> None:
    assert rows(run("nets.py:Original", "nets.py:deeper")) == [
        "stream layers", "  x2    layers.{4-5}  pre LayerNorm self_attention: only in B", "  x2    layers.{4-5}  pre LayerNorm ffn: only in B",
        "4 sites differ"]
    assert rows(run("nets.py:Original", "nets.py:left_out")) == [
        "stream layers", "  x1    layers.2  pre LayerNorm ffn: only in A",
        "  x1    layers.3  self_attention: in B the stream breaks off before it", "2 sites differ"]


def test_files_and_targets(here: pathlib.Path) -> None:
    assert CliRunner().invoke(app, ["check", "nets.py:Original", "--format", "json", "--output", "before.json"]).exit_code == 0
    assert run("before.json", "nets.py:Port").exit_code == 0
    assert run("before.json", "nets.py:post").exit_code == 1
    assert run("report.json", "wiring.json").stdout.endswith("no difference; 1 site on 1 stream compared\n")


def test_json(here: pathlib.Path) -> None:
    done = run("nets.py:Original", "nets.py:left_out", "--json", "--output", "diff.json")
    assert (done.exit_code, done.stdout) == (1, "")
    told = json.loads((here / "diff.json").read_text())
    assert told["schema"] == "skipway.diff/1" and told["equal"] is False
    assert told["a"] == {"target": "nets.py:Original", "model": "Original", "sites": 8, "streams": 1,
                         "notes": ["inputs: example_inputs of the file"]}
    one, start = told["differences"]
    assert (start["field"], start["first"], start["second"], start["module"]) == ("start", False, True, "layers.3")
    assert (one["field"], one["first"], one["second"], one["module"], one["site"], one["other_site"]) == (
        "site", "pre LayerNorm ffn", None, "layers.2", 5, None)
    equal = json.loads(run("report.json", "wiring.json", "--json").stdout)
    assert (equal["equal"], equal["differences"]) == (True, [])


def test_inputs_of_both_and_of_each_side(monkeypatch: pytest.MonkeyPatch) -> None:
    import skipway.targets
    asked = []
    real = skipway.targets.resolve

    def resolve(target: str, **options: Any) -> Any:
        asked.append((target, options))
        return real(target, **({**options, "config": ()}))

    monkeypatch.setattr(skipway.targets, "resolve", resolve)
    done = run("nets.py:Original", "nets.py:Port", "--input-a", "x=float32[1,3,16]", "--input-b", "hidden=float32[1,3,16]", "--config", "k=1",
               "--config-b", "j=2")
    assert done.exit_code == 0, done.stderr
    assert asked == [("nets.py:Original", {"inputs": ("x=float32[1,3,16]",), "inputs_from": None, "config": ("k=1",)}),
                     ("nets.py:Port", {"inputs": ("hidden=float32[1,3,16]",), "inputs_from": None, "config": ("k=1", "j=2")})]
    asked.clear()
    assert run("nets.py:Original", "nets.py:Port", "--inputs", "nets.py:example_inputs", "--input-b", "float32[1,3,16]").exit_code == 0
    assert [options["inputs_from"] for _, options in asked] == ["nets.py:example_inputs", None]


def test_a_wiring_of_a_real_family() -> None:
    pytest.importorskip("transformers")
    small = ["--config", "num_hidden_layers=2"]
    assert run("hf:bert", "hf:roberta", *small).exit_code == 0
    done = run("hf:llama", "hf:gpt2", "--config-a", "num_hidden_layers=2", "--config-b", "n_layer=2")
    assert done.exit_code == 1 and "norm LayerNorm, was RMSNorm" in done.stdout


@pytest.mark.parametrize(("arguments", "part"), [
    (["notes.txt", "nets.py:Port"], "notes.txt"),
    (["none.json", "nets.py:Port"], "none.json: No such file or directory"),
    (["report.json", "config.json"], "config.json: neither a report nor a wiring: it has no schema field"),
    (["config.json", "nets.py"], "config.json: neither a report nor a wiring"),
    (["newer.json", "report.json"], "newer.json: made by a newer skipway"),
    (["report.json", "wiring.json", "--input-b", "float32[2]"], "wiring.json: --input-b, --inputs-b and --config-b are for a model"),
    (["nets.py:plain", "nets.py:Port"], "nets.py:plain: no residual stream was found"),
    (["report.json", "empty.json"], "empty.json: no residual stream was found"),
    (["nets.py:Original", "nets.py:Missing"], "has no 'Missing'"),
    (["report.json", "wiring.json", "--output", "no/such/file"], "--output no/such/file: No such file or directory"),
    (["report.json", "wiring.json", "--mode", "test"], "--mode: got 'test'"),
])
def test_what_cannot_be_had_is_one_line_and_status_2(here: pathlib.Path, arguments: list[str], part: str) -> None:
    (here / "notes.txt").write_text("hello")
    (here / "config.json").write_text('{"model_type": "llama"}')
    (here / "newer.json").write_text('{"schema": "skipway.wiring/2"}')
    (here / "empty.json").write_text(json.dumps({**records.report().to_dict()["wiring"], "streams": []}))
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("skipway: error: ") and done.stderr.count("\n") == 1 and part in done.stderr


def test_hostile_names_stay_on_their_lines(here: pathlib.Path) -> None:
    name = "a\n\x1b[31m\u202eb" + "n" * 10_000
    for file, placement in (("a.json", "pre"), ("b.json", "post")):
        site = records.site(0, name)
        report = records.report(sites=(site,), notes=(name,)).to_dict()
        report["wiring"]["model"] = name
        report["wiring"]["streams"][0] |= {"name": name}
        report["wiring"]["streams"][0]["sites"][0] |= {"placement": placement}
        (here / file).write_text(json.dumps(report))
    done = run("a.json", "b.json")
    assert done.exit_code == 1 and re.search(r"[^\n\x20-\uffff]|\u202e", done.stdout) is None
    assert "placement post, was pre" in " ".join(done.stdout.split()) and os.linesep in done.stdout
