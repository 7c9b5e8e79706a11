"""Real models whose wiring was read from their source by hand: every site is recovered, in its layer and order.

The readings lie beside a checkout, in ../shared/truth; without them, or without transformers, these tests are skipped.
"""

import importlib.util
import json
import pathlib
from functools import cache
from types import ModuleType
from typing import Any

import pytest

FOLDER = pathlib.Path(__file__).parents[3] / "shared" / "truth"
READINGS = FOLDER / "wirings.json"
ENTRIES = json.loads(READINGS.read_text()) if READINGS.exists() else []

pytestmark = [
    pytest.mark.skipif(not ENTRIES, reason="no ../shared/truth beside this checkout"),
    pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed"),
]


@cache
def scorer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shared_truth_score", FOLDER / "score.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("entry", ENTRIES or [{"id": "none"}], ids=lambda entry: entry["id"])
def test_wiring_is_the_one_that_was_read(entry: dict[str, Any]) -> None:
    assert scorer().score(entry) == []
