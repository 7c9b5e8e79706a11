"""`plain` on every join of hand-read models, and edits of random joins, where the list of them lies beside the checkout (bench/rewire_models.py)."""

import json
import pathlib
import random

import pytest

from ..benches import bench

LIST = pathlib.Path(__file__).parents[3] / "shared" / "truth" / "wirings.json"
ENTRIES = {e["id"]: e for e in json.loads(LIST.read_text())} if LIST.is_file() else {}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_a_hand_read_model(name: str) -> None:
    module = bench("rewire_models")
    build = bench("replay").builder(LIST.parent)
    for training in (False, True):
        if training and name == "cvt":                      # batch norm over one value cannot train
            continue
        model, inputs = build(ENTRIES[name])
        _, _, wrong = module.plain_everywhere(model.train(training), inputs)
        assert wrong == ""
    model, inputs = build(ENTRIES[name])
    assert module.replayed(model.eval(), inputs, random.Random(name)) == []
