"""A trial: what it records, that a stop changes nothing of it, and that divergence is a result."""

import json
import pathlib
import random
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import arm, trial

from skipway._errors import StoreError
from skipway.lab import _checkpoint, _trial, tasks
from skipway.lab._optimizer import Optimizer, factor
from skipway.lab.records import Arm, Outcome

TASK = tasks.build("copy:symbols=4,length=3")
DROPPING = """
import random
import numpy as np
import torch
from torch import nn


class Noisy(nn.Module):
    def __init__(self, vocabulary, classes):
        super().__init__()
        self.table, self.drop, self.out = nn.Embedding(vocabulary, 8), nn.Dropout(0.3), nn.Linear(8, classes)

    def forward(self, x):
        h = self.table(x)
        if self.training:
            h = h * (1 + 0.1 * random.random() + 0.1 * np.random.rand())
        return self.out(self.drop(h))
"""


def numbers(outcome: "Outcome | None") -> str:
    """Everything that a stop must not change."""
    assert outcome is not None
    return json.dumps([[asdict(r) for r in rows] for rows in (outcome.points, outcome.depths, outcome.readouts)] + [outcome.final, outcome.score])


def stopped_at(steps: "list[int]", made: Arm, path: pathlib.Path) -> Outcome:
    """The trial, stopped before each of these steps and begun again from its file."""
    for step in sorted(steps):
        seen = [0]
        out = _trial.run(made, trial(made.name), TASK, path, lambda done, loss, seen=seen: seen.__setitem__(0, done),
                         lambda step=step, seen=seen: seen[0] >= step)
        assert out is None and path.exists()
    out = _trial.run(made, trial(made.name), TASK, path)
    assert out is not None
    return out


@settings(deadline=None, max_examples=6)
@given(stops=st.lists(st.integers(1, 11), min_size=1, max_size=3, unique=True),
       case=st.sampled_from(["adamw", "sgd", "muon", "highway", "hyper", "bfloat16", "float64"]))
def test_a_stop_changes_no_bit(stops: "list[int]", case: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    fields: dict[str, Any] = {"optimizer": case} if case in ("adamw", "sgd", "muon") else {"dtype": case} if "float" in case else {"scheme": case}
    made = arm(**fields)
    whole = _trial.run(made, trial(made.name), TASK)
    parts = stopped_at(stops, made, tmp_path_factory.mktemp("stop") / "c.safetensors")
    assert numbers(parts) == numbers(whole) and parts.resumed == len(stops)


@pytest.fixture
def noisy(tmp_path: pathlib.Path) -> Arm:
    (tmp_path / "noisy.py").write_text(DROPPING)
    return arm(scheme=None, factory=f"{tmp_path / 'noisy.py'}:Noisy", name="noisy", probes=())


def test_random_states_go_on(noisy: Arm, tmp_path: pathlib.Path) -> None:
    """Dropout, Python's and numpy's random numbers."""
    assert numbers(stopped_at([3, 7], noisy, tmp_path / "c")) == numbers(_trial.run(noisy, trial("noisy"), TASK))


@pytest.mark.parametrize("fault", ["torch", "random", "numpy", "optimizer", "losses"])
def test_a_state_that_is_not_brought_back_is_seen(fault: str, noisy: Arm, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = numbers(_trial.run(noisy, trial("noisy"), TASK))
    real = _checkpoint.read
    if fault == "torch":
        monkeypatch.setattr(torch, "set_rng_state", lambda state: None)
    elif fault == "random":
        monkeypatch.setattr(random, "setstate", lambda state: None)
    elif fault == "numpy":
        monkeypatch.setattr("numpy.random.set_state", lambda state: None)
    elif fault == "optimizer":
        monkeypatch.setattr(Optimizer, "load", lambda self, tensors: None)
    else:
        monkeypatch.setattr(_checkpoint, "read", lambda *a: {**real(*a), "losses": [0.0], "gradients": [0.0]})
    assert numbers(stopped_at([3, 7], noisy, tmp_path / "c")) != whole


def test_what_is_recorded() -> None:
    out = _trial.run(arm(), trial(), TASK)
    assert out is not None and (out.state, out.step, out.reason) == ("finished", 12, "")
    held = [p for p in out.points if p.split == "held_out"]
    train = [p for p in out.points if p.split == "train"]
    assert [p.step for p in held] == [p.step for p in train] == [4, 8, 12] and out.final == held[-1].loss and out.score == held[-1].score
    assert all(p.gradient is not None and p.gradient > 0 for p in train) and [p.lr for p in held] == [None] * 3
    assert train[-1].lr == pytest.approx(1e-3 * factor(arm(), 11))
    assert [(d.step, d.index) for d in out.depths] == [(0, 0), (0, 1), (12, 0), (12, 1)] and {d.source for d in out.depths} == {"probe"}
    assert all(d.ratio is not None and d.ratio > 0 and d.gradient is not None and d.gradient > 0 for d in out.depths)
    assert [r.step for r in out.readouts] == [0, 12] and out.tokens_per_second is not None and out.peak_memory is not None
    assert out.environment["torch"] == torch.__version__.split("+")[0] or out.environment["torch"] == torch.__version__
    assert Outcome.from_dict(json.loads(json.dumps(out.to_dict()))) == out


def test_without_a_skip_depth_is_measured_at_the_branches() -> None:
    out = _trial.run(arm(scheme="none", name="none", depth=2), trial("none"), TASK)
    assert out is not None and len(out.depths) == 8 and {d.source for d in out.depths} == {"branch"}
    assert [d.kind for d in out.depths[:2]] == ["self_attention", "ffn"] and all(d.stream == d.write and d.gradient for d in out.depths)


def test_the_branch_measurement_agrees_with_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """On `none` by hand: the ratio is one state over the state before, the gradient that of the loss on the state."""
    from skipway.lab import _measure
    from skipway.lab._model import build
    made = arm(scheme="none", name="none", options={"normed": True})
    model, batch = build(made, TASK, 0), TASK.batch("held_out", 0, 0, 4)
    rows, note = _measure.depths(model, TASK, batch, 0)
    x = model.embed(batch.inputs)
    states = [x]
    for layer in model.stack.layers:
        y = layer.branch(layer.scheme.norm(states[-1]))
        y.retain_grad()
        states.append(y)
    TASK.loss(model.head(model.stack.final_norm(states[-1])), batch).backward()
    rms = [float(s.detach().square().mean().sqrt()) for s in states]
    assert note == "" and [r.ratio for r in rows] == pytest.approx([rms[1] / rms[0], rms[2] / rms[1]], rel=1e-5)
    assert [r.gradient for r in rows] == pytest.approx([float(s.grad.square().mean().sqrt()) for s in states[1:]], rel=1e-4)


def test_the_readout_reads_what_is_there_and_not_what_is_not() -> None:
    from skipway.lab import _measure
    from skipway.lab._model import build
    batches = [TASK.batch("held_out", 0, k, 64) for k in range(4)]
    model = build(arm(width=16), TASK, 0)
    found = _measure.readout(model, TASK, batches, 0)
    assert found is not None and found.value is not None and found.value > 0.95 > found.chance
    with torch.no_grad():
        model.embed.token.weight.zero_()                    # nothing of the input is left
    lost = _measure.readout(model, TASK, batches, 0)
    places = 1 / 6 + 5 / 6 / 4                              # places alone tell the separator, and no symbol
    assert lost is not None and lost.value is not None and lost.value == pytest.approx(places, abs=0.06)
    with torch.no_grad():
        model.embed.token.weight.fill_(float("nan"))
    broken = _measure.readout(model, TASK, batches, 0)
    assert broken is not None and broken.value is None


def test_divergence_is_a_result_with_its_step() -> None:
    made = arm(optimizer="sgd", clip=None, steps=40, warmup=0, schedule="constant", probes=(), scheme="plain", name="plain")
    out = _trial.run(made, replace(trial("plain"), lr=1e4), TASK)
    assert out is not None and out.state == "diverged" and 1 < out.step < 40 and out.final is None and f"at step {out.step}" in out.reason
    assert out.points[-1].split == "train" and out.points[-1].step == out.step


def test_a_damaged_checkpoint_is_told_and_kept(tmp_path: pathlib.Path) -> None:
    path, made, seen = tmp_path / "c", arm(), [0]
    assert _trial.run(made, trial(), TASK, path, lambda done, loss: seen.__setitem__(0, done), lambda: seen[0] >= 6) is None
    good = path.read_bytes()
    for bad in (good[:-1] + bytes([good[-1] ^ 1]), good[:len(good) // 2], b"", good.replace(b'progress', b'progrezs', 1)):
        path.write_bytes(bad)
        with pytest.raises(StoreError, match="the checkpoint is damaged"):
            _trial.run(made, trial(), TASK, path)
        assert path.read_bytes() == bad
    path.write_bytes(good)
    assert numbers(_trial.run(made, trial(), TASK, path)) == numbers(_trial.run(made, trial(), TASK))


def test_the_schedule() -> None:
    made = arm(steps=10, warmup=2, schedule="linear")
    assert [round(factor(made, s), 3) for s in range(10)] == [0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]
    assert factor(replace(made, schedule="constant"), 9) == 1.0
    assert factor(replace(made, schedule="cosine"), 2) == 1.0 and factor(replace(made, schedule="cosine"), 10) == pytest.approx(0.1)


def test_the_optimizer_keeps_the_schemes_wishes() -> None:
    from skipway.lab._model import build
    model = build(arm(scheme="layer_scale", name="layer_scale"), TASK, 0)
    made = Optimizer(model, arm(), 1e-3)
    decay = {id(p): g["weight_decay"] for g in made.all[0].param_groups for p in g["params"]}
    assert len(decay) == len(list(model.parameters()))
    assert all((decay[id(p)] == 0.01) == (p.ndim > 1) for p in model.parameters())
    muon = Optimizer(model, replace(arm(), optimizer="muon"), 1e-3)
    ids = {id(p) for g in muon.all[0].param_groups for p in g["params"]}
    assert ids == {id(p) for p in model.stack.parameters() if p.ndim == 2} and len(muon.all) == 2
