"""`trace`: the same answer every time, without and with numbers, and as plain values that can be stored."""

import dataclasses
import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import skipway
from skipway import _registry
from skipway.wiring.structure import SCHEMA

from ..models.lookalikes import LOOKALIKES
from .small import DIM, Block, Calls, Joined, Tower, recovered, run_for_real, tokens, unplaced

RULES = _registry.names("skipway.rules")
every_lookalike = pytest.mark.parametrize("name", sorted(LOOKALIKES))


def lookalike(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    made = LOOKALIKES[name]()
    return made.model.eval(), made.args


@every_lookalike
def test_twice_the_same(name: str) -> None:
    (model, args), (again, same) = lookalike(name), lookalike(name)
    first = skipway.trace(model, *args).to_dict()
    assert skipway.trace(model, *args).to_dict() == first
    assert skipway.trace(again, *same).to_dict() == first


@every_lookalike
def test_a_wiring_survives_its_dictionary_and_json(name: str) -> None:
    model, args = lookalike(name)
    wiring = skipway.trace(model, *args)
    data = wiring.to_dict()
    assert skipway.Wiring.from_dict(data) == wiring
    stored = json.dumps(data, allow_nan=False)
    assert skipway.Wiring.from_dict(json.loads(stored)) == wiring
    assert json.loads(stored) == data, "only what JSON can hold"
    assert skipway.Wiring.from_dict(data).to_dict() == data


@every_lookalike
def test_a_run_with_numbers_finds_the_same(name: str) -> None:
    model, args = lookalike(name)
    assert recovered(run_for_real(model, *args)) == skipway.trace(model, *args).streams


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("kind", ["bad", "good"])
def test_also_on_every_example_of_a_rule(name: str, kind: str) -> None:
    example = getattr(_registry.load("skipway.rules", name), kind)()
    assert recovered(run_for_real(example.model, *example.args)) == skipway.trace(example.model, *example.args).streams


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("make", [
    lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(DIM, 2, 32, batch_first=True), 2, enable_nested_tensor=False),
    lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(DIM, 2, 32, batch_first=True, norm_first=True), 2, enable_nested_tensor=False),
    lambda: Tower(Block(), Block()), lambda: Joined(torch.add)])
def test_also_in_both_modes(make: type[nn.Module], training: bool) -> None:
    model = make().train(training)
    assert unplaced(recovered(run_for_real(model, tokens()))) == unplaced(skipway.trace(model, tokens()).streams)
    with torch.device("meta"):
        bare = make().train(training)
    on_meta = skipway.trace(bare, tokens())
    assert unplaced(on_meta.streams) == unplaced(skipway.trace(model, tokens()).streams) and on_meta.how == "abstract"


SCRIPT = """
import json, sys, torch
sys.path[:0] = {paths!r}
import skipway
from tests.models.lookalikes import LOOKALIKES
out = {{}}
for name in {names!r}:
    torch.manual_seed(int(sys.argv[1]))
    made = LOOKALIKES[name]()
    out[name] = skipway.trace(made.model.eval(), *made.args).to_dict()
print(json.dumps(out, sort_keys=True))
"""


def test_the_same_in_two_processes() -> None:
    """With other hash seeds, other random numbers and other addresses."""
    home = Path(__file__).parents[2]
    source = SCRIPT.format(paths=[str(home), str(Path(skipway.__file__).parents[1])], names=sorted(LOOKALIKES))
    runs = [subprocess.Popen([sys.executable, "-c", source, seed], env={**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"},
                             stdout=subprocess.PIPE, text=True) for seed in ("1", "2")]
    first, second = (json.loads(run.communicate(timeout=300)[0]) for run in runs)
    assert [run.returncode for run in runs] == [0, 0]
    home_paths = {s["file"] for w in first.values() for stream in w["streams"] for s in stream["sites"]}
    assert first == second and any(home_paths)


def test_what_a_wiring_says_of_its_model() -> None:
    model = Tower(Block())
    wiring = skipway.trace(model, tokens())
    assert (wiring.model, wiring.parameters, wiring.how, wiring.notes) == ("Tower", sum(p.numel() for p in model.parameters()), "abstract", ())
    assert wiring.to_dict()["schema"] == SCHEMA == "skipway.wiring/1"
    assert set(wiring.to_dict()) == {"schema", "model", "parameters", "how", "notes", "streams", "links"}
    assert set(wiring.to_dict()["streams"][0]["sites"][0]) == {f.name for f in dataclasses.fields(skipway.Site)}


def test_another_schema_is_refused() -> None:
    data = skipway.trace(Tower(Block()), tokens()).to_dict()
    with pytest.raises(ValueError, match=r"got schema 'skipway\.wiring/0', want 'skipway\.wiring/1'"):
        skipway.Wiring.from_dict({**data, "schema": "skipway.wiring/0"})
    with pytest.raises(ValueError, match="got schema None"):
        skipway.Wiring.from_dict({})


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(skipway.Site)])
def test_every_field_of_a_site_is_stored(field: str) -> None:
    wiring = skipway.trace(Tower(Block()), tokens())
    site = wiring.streams[0].sites[0]
    other = dataclasses.replace(site, **{field: (("x",) if isinstance(getattr(site, field), tuple) and field != "branches" else
                                                 (skipway.Branch("other", ()),) if field == "branches" else "changed")})
    stream = dataclasses.replace(wiring.streams[0], sites=(other, *wiring.streams[0].sites[1:]))
    changed = dataclasses.replace(wiring, streams=(stream,))
    assert changed.to_dict() != wiring.to_dict()
    assert skipway.Wiring.from_dict(changed.to_dict()) == changed != wiring


def test_inputs_by_name_and_nested() -> None:
    def run(m: nn.Module, batch: dict[str, Tensor], scale: float = 1.0, *, extra: tuple[Tensor, ...] = ()) -> dict[str, Tensor]:
        return {"out": m.tower(batch["x"] * scale + extra[0])}
    wiring = skipway.trace(Calls(run, tower=Tower(Block())), {"x": tokens()}, 2.0, extra=(tokens(),))
    assert [s.module for s in wiring.sites] == ["tower.blocks.0"] * 2


def test_the_collector_is_left_as_it_was() -> None:
    for on in (True, False):
        (gc.enable if on else gc.disable)()
        try:
            skipway.trace(Tower(Block()), tokens())
            assert gc.isenabled() is on
            with pytest.raises(skipway._errors.TraceError):
                skipway.trace(Tower(Block()), torch.randn(2, 5, 3))
            assert gc.isenabled() is on
        finally:
            gc.enable()


def test_the_line_that_calls_trace_is_no_part_of_the_answer() -> None:
    """The sites of torch's own layers have no line of the user's."""
    model = nn.TransformerEncoderLayer(DIM, 2, 32, batch_first=True)
    first = skipway.trace(model, tokens())
    second = skipway.trace(model, tokens())
    assert first == second
    assert {(s.file == __file__) for s in first.sites} == {False}


def test_shapes_do_not_matter_to_the_wiring() -> None:
    model = Tower(Block(), Block())
    assert len({json.dumps(skipway.trace(model, tokens(b, n)).to_dict()) for b, n in ((1, 2), (2, 5), (3, 16))}) == 1


def test_a_wiring_that_forgets_a_field_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from skipway.wiring import structure
    plain = structure._site
    monkeypatch.setattr(structure, "_site", lambda data: plain({**data, "gain": 1.0}))
    with pytest.raises(AssertionError):
        test_every_field_of_a_site_is_stored("gain")
