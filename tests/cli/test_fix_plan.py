"""`skipway check --fix-plan`: Python that mends what was found."""

import pathlib
from typing import Any

import torch
from typer.testing import CliRunner

import skipway
from skipway.cli import app

NET = '''
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, lost=1):
        super().__init__()
        self.lost = lost
        self.blocks = nn.ModuleList(nn.ModuleDict({
            "norm1": nn.LayerNorm(8), "mix": nn.Linear(8, 8), "norm2": nn.LayerNorm(8),
            "mlp": nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))}) for _ in range(3))

    def forward(self, x):
        for k, b in enumerate(self.blocks):
            x = x + b["mix"](b["norm1"](x))
            y = b["mlp"](b["norm2"](x))
            x = y if k == self.lost else x + y
        return x

def broken():
    return Net(), (torch.randn(2, 5, 8),)

def whole():
    return Net(-1), (torch.randn(2, 5, 8),)

def plain():
    return nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(20)]), (torch.randn(2, 8),)
'''


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["check", *arguments])


def test_the_printed_plan_mends_the_model(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(NET)
    result = run(f"{file}:broken", "--fix-plan")
    assert result.exit_code == 1, result.output
    assert "# Net: 1 of 1 finding mended by changing joins" in result.stdout
    assert ".branch('blocks.1.mlp', begins='blocks.1.norm2').insert_skip()  # SKW101 missing-skip at 'blocks.1.mlp'" in result.stdout
    scope: dict[str, Any] = {}
    exec(NET, scope)
    torch.manual_seed(0)
    model, inputs = scope["broken"]()
    torch.manual_seed(0)
    want, _ = scope["whole"]()
    exec(result.stdout, {"model": model, "inputs": inputs})
    assert skipway.check(model, *inputs).ok
    torch.testing.assert_close(model(*inputs), want(*inputs))


def test_what_no_rewire_mends_is_named(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(NET)
    result = run(f"{file}:plain", "--fix-plan")
    assert "0 of 1 finding mended" in result.stdout and "# left, to be mended in the source: SKW101 missing-skip at the model" in result.stdout
    exec(result.stdout, {})


def test_nothing_found_prints_nothing_and_formats_are_refused(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(NET)
    result = run(f"{file}:whole", "--fix-plan")
    assert (result.exit_code, result.stdout) == (0, "")
    result = run(f"{file}:whole", "--fix-plan", "--format", "json")
    assert result.exit_code == 2 and "--fix-plan prints Python in place of the report" in result.output
