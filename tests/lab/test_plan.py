"""The plan: arms from variants and factors, baselines, matching, costs, and errors before anything runs."""

from typing import Any

import pytest
import torch
from small import arm

from skipway._errors import SkipwayError
from skipway.lab import Study, _cost, tasks
from skipway.lab._arms import wanted
from skipway.lab._model import build
from skipway.lab._plan import plan

SMALL: dict[str, Any] = {"task": "copy:symbols=4,length=3", "depth": 1, "width": 16, "heads": 2, "batch": 4, "steps": 20, "lr": 1e-3}


def arms(**fields: Any) -> "list[Any]":
    study = Study(**{**SMALL, **fields})
    return [w.arm for w in wanted(study, tasks.build(study.task))]


def test_factors_cross_variants_and_every_cell_has_a_baseline() -> None:
    made = arms(variants=["pre_norm", "rezero"], depth=[1, 2], norm=["layer_norm", "rms_norm"])
    assert [a.name for a in made[:4]] == ["pre_norm depth=1 norm=layer_norm", "rezero depth=1 norm=layer_norm", "pre_norm depth=1 norm=rms_norm",
                                          "rezero depth=1 norm=rms_norm"]
    assert len(made) == 8 and [a.baseline for a in made] == [True, False] * 4 and len({a.group for a in made}) == 4
    assert [a.depth for a in made] == [1] * 4 + [2] * 4


def test_one_variant_with_a_factor_is_compared_across_it() -> None:
    made = arms(variants=["pre_norm"], depth=[1, 2, 4], baseline="pre_norm depth=2")
    assert [a.baseline for a in made] == [False, True, False] and {a.group for a in made} == {""}


def test_a_variant_has_fields_of_its_own() -> None:
    muon = {"name": "muon", "variant": "pre_norm", "optimizer": "muon", "lr": [1e-2], "width": 32}
    study = Study(**SMALL, variants=["pre_norm", muon], baseline="muon")
    made = wanted(study, tasks.build("copy"))
    assert [(w.arm.name, w.arm.optimizer, w.arm.width, w.rates, w.arm.baseline) for w in made] == [
        ("pre_norm", "adamw", 16, (1e-3,), False), ("muon", "muon", 32, (1e-2,), True)]


def test_defaults_are_the_tasks_own_and_scale_with_the_steps() -> None:
    made = wanted(Study(task="copy", steps=50), tasks.build("copy"))[0]
    assert (made.arm.depth, made.arm.width, made.rates) == (6, 32, (1e-3, 3e-3, 1e-2))
    assert (made.arm.warmup, made.arm.evaluate, made.arm.checkpoint, made.arm.probes) == (5, 2, 10, (0, 25, 50))


@pytest.mark.parametrize(("fields", "part"), [
    ({"variants": ["pre_nrom"]}, "unknown variant 'pre_nrom'; did you mean pre_norm"),
    ({"variants": ["hyper:lnes=4"]}, "unknown option 'lnes'; did you mean lanes"),
    ({"variants": ["plain:x=1"]}, "scheme plain: it has none"),
    ({"variants": ["pre_norm", "pre_norm"]}, "variant 'pre_norm' stands 2 times"),
    ({"variants": ["pre_norm", "none"], "baseline": "nine"}, "unknown baseline 'nine'; did you mean none"),
    ({"variants": [{"variant": "pre_norm", "depth": 3}, "none"], "depth": [1, 2]}, "it sets depth, which is also a factor"),
    ({"variants": ["hyper:lanes=0"]}, "lanes"),
    ({"task": "copi"}, "unknown task 'copi'; did you mean copy"),
    ({"width": 15}, "an attention of width 15 with 2 heads"),
    ({"device": "tpu"}, "device tpu: want cpu or cuda"),
])
def test_errors_come_before_anything_runs(fields: "dict[str, Any]", part: str) -> None:
    with pytest.raises(SkipwayError) as error:
        plan(Study(**{**SMALL, **fields}))
    assert part in str(error.value) and "\n" not in str(error.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_no_cuda() -> None:
    with pytest.raises(SkipwayError, match="sees no such device"):
        plan(Study(**SMALL, device="cuda"))


def test_parameters_and_operations_by_hand() -> None:
    """One block of width d: attention 4 d^2, feed-forward 8 d^2; a token's forward takes 2 operations a weight, the backward twice that."""
    task, made = tasks.build("copy:symbols=4,length=3"), arm(width=16, batch=5)
    model = build(made, task, 0)
    d, tokens, rows = 16, 6, 5
    blocks = 12 * d * d
    assert _cost.parameters(model) == blocks + 9 * d + 2 * 3 * d + (5 + 6) * d + 4 * d + 4
    matrices = 3 * 2 * rows * tokens * (blocks + 4 * d)
    attention = 3 * 2 * rows * 2 * tokens * tokens * d
    assert _cost.flops(model, task, made) == matrices + attention


def test_matched_parameters() -> None:
    found = plan(Study(**{**SMALL, "width": 32}, variants=["pre_norm", "highway"], match="params"))
    base, other = found.arms
    assert other.width < base.width and abs(other.parameters / base.parameters - 1) < 0.12 and "width" in other.notes[0]
    free = plan(Study(**{**SMALL, "width": 32}, variants=["pre_norm", "highway"]))
    assert free.arms[1].parameters / free.arms[0].parameters > 1.12


@pytest.mark.parametrize("match", ["flops", "time"])
def test_matched_operations_and_time(match: str) -> None:
    found = plan(Study(**{**SMALL, "steps": 1000}, variants=["pre_norm", {"name": "deep", "variant": "pre_norm", "depth": 8}], match=match))
    base, deep = found.arms
    if match == "flops":
        assert deep.steps * deep.flops == pytest.approx(base.steps * base.flops, rel=0.01)
    assert deep.steps < base.steps == 1000 and max(deep.probes) == deep.steps and f"{deep.steps} steps in place of 1000" in deep.notes[0]


def test_the_plan_counts_trials_and_time() -> None:
    found = plan(Study(**SMALL, seeds=3, first_seed=5), workers=2)
    assert len(found.trials) == 6 and {t.seed for t in found.trials} == {5, 6, 7} and len({t.id for t in found.trials}) == 6
    assert found.arms[1].paired == found.arms[1].shared == found.arms[1].parameters
    again = plan(Study(**SMALL, seeds=3, first_seed=5), workers=1)
    assert again.fingerprint == found.fingerprint and again.seconds > 0 and found.threshold == found.chance / 2
