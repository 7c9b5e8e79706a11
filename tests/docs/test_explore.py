"""The interactive page: its numbers are skipway's own, and its drawings those of the running model."""

import importlib.util
import pathlib
import sys
from types import ModuleType

import pytest
import torch

import skipway

FILE = pathlib.Path(__file__).parents[2] / "docs" / "_explore.py"


@pytest.fixture(scope="module")
def explore() -> ModuleType:
    spec = importlib.util.spec_from_file_location("_explore", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["_explore"] = module
    spec.loader.exec_module(module)
    return module


def test_sampled_curves_are_what_this_version_computes(explore: ModuleType) -> None:
    assert explore.stale(count=16) == []


def test_every_choice_has_its_curves(explore: ModuleType) -> None:
    held = explore.stored()
    names = {f"{r} {s} {d}" for r in explore.RULES for s in explore.STARTS for d in explore.DEPTHS}
    assert set(held["curves"]) == names
    for name, curve in held["curves"].items():
        blocks = int(name.rpartition(" ")[2])
        assert len(curve["stream"]) == len(curve["gradient"]) == 2 * blocks + 1, name


def test_a_changed_number_is_seen(explore: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    held = explore.stored()
    held["curves"]["pre_norm unit 3"]["stream"][4] *= 1.001
    monkeypatch.setattr(explore, "stored", lambda: held)
    assert "pre_norm unit 3: stream" in explore.stale(count=200)


def test_the_walk_is_what_the_stack_does(explore: ModuleType) -> None:
    """The sizes are those that `skipway.probe` measures at the joins of the running stack, and the end is the stack's own output."""
    for rule in ("pre_norm", "plain", "output_norm", "sandwich"):
        stack, x, _ = explore.build(rule, "unit", 3)
        rows = skipway.probe(stack, x).rows
        want = torch.tensor([rows[0].before] + [r.after for r in rows], dtype=torch.float64)
        torch.testing.assert_close(torch.tensor(explore.curves(rule, "unit", 3)["stream"], dtype=torch.float64), want, rtol=1e-4, atol=0)


def test_the_drawings_are_current(explore: ModuleType) -> None:
    held = explore.stored()["drawings"]
    assert held == {rule: explore.drawing(rule) for rule in explore.RULES}
    assert held["none"] == "" and all(held[r].startswith("<svg") for r in held if r != "none")
