"""Two trained models through `skipway.models.load`: what bench/models_real_weights.py measures holds.

The models come inside packages (176 MB). Without them these tests skip; where CI is set they fail.
"""

import importlib.util
import os
import pathlib
import sys
from types import ModuleType

import pytest
import torch

import skipway

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    pytest.importorskip("transformers")
    spec = importlib.util.spec_from_file_location("models_real_weights", ROOT / "bench" / "models_real_weights.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def need(bench: ModuleType, name: str) -> pathlib.Path:
    found: pathlib.Path | None = bench.place(name)
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{bench.PACKAGES[name][0]} is not installed; {bench.INSTALL}")
    if name == "smollm2":
        pytest.importorskip("gguf")
    return found


@pytest.mark.slow
def test_next_tokens_and_held_out_loss(bench: ModuleType) -> None:
    need(bench, "smollm2")
    got = bench.measured("smollm2", 4)
    assert got["tokens"] == 4 * bench.TOKENS
    assert got["logits"] <= 1e-5
    assert got["losses"] <= 1e-6
    assert 1.0 < got["loss"] < 4.0                          # it has seen Python; a uniform guess among its words is 10.8


def test_sentence_embeddings(bench: ModuleType) -> None:
    need(bench, "minilm")
    got = bench.measured("minilm", 4)
    assert got["sentences"] > 20
    assert got["embeddings"] <= 1e-5


def test_a_wrong_weight_is_seen(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    need(bench, "minilm")
    load = skipway.models.load

    def wrong(folder: pathlib.Path) -> skipway.models.Model:
        made = load(folder)
        with torch.no_grad():
            made.get_parameter("stack.layers.5.branch.output.weight")[0, 0] += 0.1
        return made
    monkeypatch.setattr(skipway.models, "load", wrong)
    assert bench.measured("minilm", 4)["embeddings"] > 1e-5
