"""Presets: what each file must state, that thresholds are read off the right numbers, and that a claim which fails says so."""

import json
import pathlib
from typing import Any

import pytest
from small import arm

from skipway import lab
from skipway._errors import StudyError
from skipway.lab import presets
from skipway.lab._analysis import report
from skipway.lab._arms import wanted
from skipway.lab._plan import plan
from skipway.lab.presets import Check, Seen
from skipway.lab.records import Measure, Outcome, Point, Trial
from skipway.lab.tasks import build
from skipway.report._compare import html
from skipway.report._compare.text import render

ISSUE = {"classroom", "degradation", "warmup", "rezero", "deepnorm", "lanes", "highway"}


def seen(rows: "dict[tuple[str, int], Outcome]", threshold: float = 1.0, **study: Any) -> "dict[str, Any]":
    """The record of a study of two arms, a and b, at one rate; rows by arm and seed."""
    outcomes = {Trial(name, 1e-3, seed): o for (name, seed), o in rows.items()}
    meta = {"study": study, "task": {"name": "copy", "options": {}, "data": None, "score": "accuracy", "chance": 2.0, "fingerprint": ""},
            "threshold": threshold, "design": {"alpha": 0.05, "first": 3, "last": 3}, "environment": {}}
    made = report(meta, [arm(name="a", baseline=True), arm(name="b")], {t: (o.state, o.reason) for t, o in outcomes.items()}, outcomes)
    return json.loads(json.dumps(made, allow_nan=False))


def ended(final: float | None, held: "tuple[float, ...]" = (), update: float | None = None) -> Outcome:
    points = tuple(p for k, loss in enumerate(held) for p in (Point("train", 10 * k + 10, loss + 1), Point("held_out", 10 * k + 10, loss)))
    state = "diverged" if final is None else "finished"
    return Outcome(state, 10, final=final, points=points, measures=(Measure(0, "update", 0.0), Measure(1, "update", update)))


def test_the_issues_presets_are_there() -> None:
    assert set(presets.names()) >= ISSUE


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_states_claim_source_and_a_study_that_makes_sense(name: str) -> None:
    member, study = presets.load(name), lab.Study(preset=name)
    assert member.CLAIM.endswith(".") and member.__doc__.startswith(f"{name}: ")
    assert any(year in member.SOURCE for year in map(str, range(2014, 2030))), "a source has its year"
    arms = [w.arm for w in wanted(study, build(study.task))]
    known = {a.name for a in arms}
    asked: set[str] = set()

    class Watching(Seen):
        def trials(self, name: str) -> "list[dict[str, Any]]":
            asked.add(name)
            return []

    found = member.checks(Watching({"summary": [], "comparisons": [], "trials": [], "threshold": 1.0}))
    assert asked <= known, "a check reads an arm that the study does not have"
    assert found and all(isinstance(c, Check) and c.value is None and not c.held for c in found), "without numbers nothing is held"
    assert study.measure == [] or {m for w in arms for m in w.measures} == set(study.measure)


def test_the_numbers_that_thresholds_are_held_against() -> None:
    rows = {("a", 0): ended(0.5, (3.0, 0.9, 0.4), 2.0), ("a", 1): ended(1.5, (3.0, 2.0, 1.5), 4.0),
            ("b", 0): ended(0.2, (0.8, 0.1), 1.0), ("b", 1): ended(0.4, (2.0, 1.0), None)}
    found = Seen(seen(rows))
    assert (found.learned("a"), found.learned("b"), found.learned("c")) == (0.5, 1.0, None)
    assert found.loss("a") == 1.0 and found.loss("b") == pytest.approx(0.3) and found.training("a") == pytest.approx((1.4 + 2.5) / 2)
    assert (found.steps("a"), found.steps("b")) == (None, 15.0), "a seed that never got there leaves no mean"
    assert (found.measure("a", "update"), found.measure("b", "update"), found.measure("a", "none")) == (3.0, None, None)
    d = found.record["comparisons"][0]["difference"]
    assert found.upper("b") == d["high"] and d["high"] is not None and found.upper("a") is None


def test_a_diverged_seed_leaves_no_mean() -> None:
    found = Seen(seen({("a", 0): ended(None), ("a", 1): ended(0.5)}))
    assert found.learned("a") == 0.5 and found.loss("a") is None and found.training("a") is None


def test_checks() -> None:
    assert Check("x", 1.0, "<=", 1.0).held and Check("x", 1.0, ">=", 1.0).held and not Check("x", 1.1, "<=", 1.0).held
    assert not Check("x", 0.9, ">=", 1.0).held and not Check("x", None, "<=", 1.0).held


@pytest.mark.parametrize(("good", "complete", "said"), [
    (True, True, "CLAIM HELD"), (False, True, "CLAIM FAILED"), (True, False, "CLAIM NOT DECIDED")])
def test_a_claim_is_told_with_its_numbers(good: bool, complete: bool, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    member = presets.load("classroom")
    monkeypatch.setattr(member, "checks", lambda s: [Check("share of b", s.learned("b"), ">=", 1.0), Check("loss of a", s.loss("a"), "<=", 3.0)])
    rows = {("a", 0): ended(2.0), ("b", 0): ended(0.5 if good else 1.5)}
    if not complete:
        rows["b", 1] = Outcome("waiting", 0)
    record = seen(rows, preset="classroom")
    claim = record["claim"]
    assert claim["held"] is (good if complete else None) and claim["claim"] == member.CLAIM and claim["source"] == member.SOURCE
    text = render(record)
    assert text.startswith(f"{said}: {member.CLAIM}\n  source: {member.SOURCE}\n") and "share of b" in text and ">= 1" in text
    assert ("  held    share of b" in text) == good
    page = html.render(record)
    assert '<h2 id="preset-title">Claim</h2>' in page and "share of b" in page and page.index('id="verdicts"') < page.index('id="preset"')
    assert f"classroom: {said.lower()}" in page


def test_a_study_without_a_preset_has_no_claim() -> None:
    record = seen({("a", 0): ended(2.0)})
    assert record["claim"] is None and "claim held" not in render(record).lower() and 'id="preset"' not in html.render(record)


def test_a_preset_gives_its_fields_and_lets_none_be_changed() -> None:
    study = lab.Study(preset="degradation")
    assert study.depth == [20, 56] and study.preset == "degradation" and lab.Study(**study.model_dump()) == study
    assert lab.Study(preset="degradation", device="cuda").device == "cuda"
    with pytest.raises(ValueError, match="preset degradation fixes seeds, on which its thresholds rest; leave seeds out"):
        lab.Study(preset="degradation", seeds=9)
    with pytest.raises(StudyError, match="unknown preset 'degredation'; did you mean degradation"):
        presets.load("degredation")


SMALL: dict[str, Any] = {"task": "copy:symbols=4,length=3", "variants": ["none:normed=true", "pre_norm"], "depth": 1, "width": 8, "heads": 2,
                         "batch": 4, "steps": 6, "lr": 1e-2, "seeds": 2, "probes": 2, "measure": ["update", "branch_update", "composite_gain"]}


def test_a_preset_runs_as_a_study_and_is_rebuilt(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skipway.lab._report import made
    from skipway.lab._store import Store
    monkeypatch.setattr(presets.load("classroom"), "STUDY", SMALL)
    study = lab.Study(preset="classroom")
    assert plan(study).study.preset == "classroom"
    record = lab.run(study, tmp_path / "s", workers=1)
    assert record["claim"]["preset"] == "classroom" and record["claim"]["held"] is False and len(record["claim"]["checks"]) == 3
    rows = {(r["arm"], r["name"], r["step"]): r["mean"] for a in record["answers"] if a["claim"] == "measured" for r in a["rows"]}
    assert rows["pre_norm", "update", 0] == rows["pre_norm", "branch_update", 0] == 0
    assert rows["pre_norm", "update", 6] > rows["pre_norm", "branch_update", 6] > 0 and rows["pre_norm", "composite_gain", 6] is None
    store = Store(tmp_path / "s")
    assert made(store) == record
    store.close()
