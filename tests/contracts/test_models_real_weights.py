"""Two trained models through `skipway.models.load`: what bench/models_real_weights.py measures holds.

The models come inside packages (176 MB). Without them these tests skip; where CI is set they fail.
"""

import pathlib
from types import ModuleType

import pytest
import torch

import skipway

from ..benches import bench as load
from ..benches import trained


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    pytest.importorskip("transformers")
    return load("models_real_weights")


@pytest.mark.slow
def test_next_tokens_and_held_out_loss(bench: ModuleType) -> None:
    trained("smollm2")
    got = bench.measured("smollm2", 4)
    assert got["tokens"] == 4 * bench.TOKENS
    assert got["logits"] <= 1e-5
    assert got["losses"] <= 1e-6
    assert 1.0 < got["loss"] < 4.0                          # it has seen Python; a uniform guess among its words is 10.8


def test_sentence_embeddings(bench: ModuleType) -> None:
    trained("minilm")
    got = bench.measured("minilm", 4)
    assert got["sentences"] > 20
    assert got["embeddings"] <= 1e-5


def test_a_wrong_weight_is_seen(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    trained("minilm")
    load = skipway.models.load

    def wrong(folder: pathlib.Path) -> skipway.models.Model:
        made = load(folder)
        with torch.no_grad():
            made.get_parameter("stack.layers.5.branch.output.weight")[0, 0] += 0.1
        return made
    monkeypatch.setattr(skipway.models, "load", wrong)
    assert bench.measured("minilm", 4)["embeddings"] > 1e-5
