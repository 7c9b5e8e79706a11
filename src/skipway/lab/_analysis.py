"""From the rows of a store to the record of the report: summaries, comparisons, answers. Needs no torch."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from skipway.lab import presets
from skipway.lab._sections import Answer, Rate, Summary, TaskFacts, TrialRow
from skipway.lab.records import SCHEMA, Arm, Outcome, Trial
from skipway.lab.stats import Comparison, Design, compare, interval, tuned
from skipway.lab.stats.verdict import Table

STEADY = 10.0           # a gradient that changes by less than this factor from the first to the last sublayer is steady


def tables(arms: Iterable[Arm], outcomes: Mapping[Trial, Outcome]) -> dict[str, Table]:
    """Final losses by arm, rate and seed. A failed trial has no place in them."""
    found: dict[str, dict[float, dict[int, float | None]]] = {a.name: {} for a in arms}
    for trial, outcome in outcomes.items():
        if outcome.state in ("finished", "diverged"):
            found[trial.arm].setdefault(trial.lr, {})[trial.seed] = outcome.final
    return {name: dict(sorted(rows.items())) for name, rows in found.items()}


def groups(arms: Iterable[Arm]) -> dict[str, list[Arm]]:
    """Arms that are compared with one another."""
    found: dict[str, list[Arm]] = {}
    for arm in arms:
        found.setdefault(arm.group, []).append(arm)
    return found


def comparisons(arms: list[Arm], outcomes: Mapping[Trial, Outcome], design: Design, rates: Mapping[str, float] | None = None) -> list[Comparison]:
    """All comparisons of a study, group by group. The rate of false verdicts holds inside a group."""
    known, found = tables(arms, outcomes), []
    for members in groups(arms).values():
        base = next(a.name for a in members if a.baseline)
        found += compare({a.name: known[a.name] for a in members}, base, design, rates)
    return found


def report(meta: Mapping[str, Any], arms: list[Arm], states: Mapping[Trial, tuple[str, str]], outcomes: Mapping[Trial, Outcome]) -> dict[str, Any]:
    """The record of schema "skipway.compare/1": the dictionary of `_sections.Record`, whose comments say what each field is."""
    design = Design(**meta["design"])
    fixed = meta.get("fixed_rates") or None
    known = tables(arms, outcomes)
    best = {a.name: (fixed or {}).get(a.name, tuned(known[a.name])) for a in arms}
    made: dict[str, Any] = {
        "schema": SCHEMA, "study": meta["study"], "task": asdict(TaskFacts(**meta["task"])), "threshold": meta["threshold"], "design": asdict(design),
        "complete": all(state in ("finished", "diverged", "failed") for state, _ in states.values()),
        "arms": [asdict(a) for a in arms],
        "summary": [asdict(_summary(a, best[a.name], outcomes, design.alpha)) for a in arms],
        "rates": [asdict(_rate(a.name, lr, row, design.alpha)) for a in arms for lr, row in known[a.name].items()],
        "comparisons": [asdict(c) for c in comparisons(arms, outcomes, design, fixed)],
        "answers": [asdict(a) for a in answers(arms, best, outcomes, meta["threshold"])],
        "trials": [{**asdict(TrialRow(t.arm, t.lr, t.seed, t.id, state, why)), **(outcomes[t].to_dict() if t in outcomes else {})}
                   for t, (state, why) in states.items()],
        "environment": meta["environment"]}
    preset = meta["study"].get("preset")
    return {**made, "claim": asdict(presets.judged(preset, made)) if preset else None}


def _summary(arm: Arm, lr: float | None, outcomes: Mapping[Trial, Outcome], alpha: float) -> Summary:
    rows = [o for t, o in outcomes.items() if t.arm == arm.name and t.lr == lr]
    kept = [o for o in rows if o.state == "finished"]
    finals = [o.final for o in kept if o.final is not None]
    return Summary(
        arm.name, arm.group, lr, interval(finals, alpha) if finals else None, _mean(o.score for o in kept), len(kept),
        sum(o.state == "diverged" for o in rows), sum(o.state == "failed" for t, o in outcomes.items() if t.arm == arm.name),
        _mean(o.seconds for o in kept), _mean(o.tokens_per_second for o in kept),
        max((o.peak_memory for o in kept if o.peak_memory), default=None))


def _rate(arm: str, lr: float, row: Mapping[int, float | None], alpha: float) -> Rate:
    kept = [v for v in row.values() if v is not None]
    return Rate(arm, lr, interval(kept, alpha) if kept else None, len(row), len(row) - len(kept))


def _mean(values: Iterable[float | None]) -> float | None:
    kept = [v for v in values if v is not None]
    return statistics.fmean(kept) if kept else None


def answers(arms: list[Arm], best: Mapping[str, float | None], outcomes: Mapping[Trial, Outcome], threshold: float) -> list[Answer]:
    """The claims one by one; values are means over seeds."""
    rows = {a.name: [o for t, o in sorted(outcomes.items(), key=lambda p: p[0].seed) if t.arm == a.name and t.lr == best[a.name]] for a in arms}
    made = [
        Answer("gradient", "Does the gradient vanish or explode on its way to the first sublayer?",
               tuple({"arm": a.name, **_gradient(rows[a.name])} for a in arms)),
        Answer("convergence", f"How many steps until the held-out loss is at most {threshold:.4g}?",
               tuple({"arm": a.name, **_convergence(rows[a.name], threshold)} for a in arms)),
        Answer("information", "How much of the input can a linear map read off the last state?",
               tuple({"arm": a.name, **_information(rows[a.name])} for a in arms))]
    if len({a.depth for a in arms}) > 1:
        made.append(Answer("depth", "Does it still train when it is deeper?", tuple(
            {"arm": a.name, "variant": a.variant, "depth": a.depth, "loss": _mean(o.final for o in rows[a.name]),
             "diverged": sum(o.state == "diverged" for o in rows[a.name]), "seeds": len(rows[a.name])} for a in arms)))
    if any(a.measures for a in arms):
        made.append(Answer("measured", "What did the measures that were asked for give?",
                           tuple(row for a in arms for row in _measured(a.name, rows[a.name]))))
    return made


def _measured(arm: str, rows: list[Outcome]) -> list[dict[str, Any]]:
    found: dict[tuple[str, int], list[float]] = {}
    for m in (m for o in rows for m in o.measures):
        found.setdefault((m.name, m.step), []).extend([] if m.value is None else [m.value])
    return [{"arm": arm, "name": name, "step": step, "mean": _mean(values), "low": min(values, default=None), "high": max(values, default=None),
             "seeds": len(values)} for (name, step), values in sorted(found.items())]


def _gradient(rows: list[Outcome]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, choose in (("first_step", min), ("last_step", max)):
        ratios = []
        for o in rows:
            steps = [d.step for d in o.depths]
            at = [d for d in o.depths if d.step == choose(steps)] if steps else []
            if len(at) > 1 and at[0].gradient is not None and at[-1].gradient:
                ratios.append(at[0].gradient / at[-1].gradient)
        mean = math.exp(statistics.fmean(math.log(r) for r in ratios)) if ratios and all(ratios) else 0.0 if ratios else None
        word = None if mean is None else "exploding" if mean > STEADY else "vanishing" if mean < 1 / STEADY else "steady"
        found[name] = {"ratio": mean, "verdict": word}
    return found


def _convergence(rows: list[Outcome], threshold: float) -> dict[str, Any]:
    steps = [next((p.step for p in o.points if p.split == "held_out" and p.loss is not None and p.loss <= threshold), None) for o in rows]
    reached = [s for s in steps if s is not None]
    return {"steps": statistics.fmean(reached) if reached else None, "reached": len(reached), "seeds": len(rows)}


def _information(rows: list[Outcome]) -> dict[str, Any]:
    both = [(o.readouts[0], o.readouts[-1]) for o in rows if o.readouts and o.state == "finished"]
    if not both:
        return {"before": None, "after": None, "chance": None, "measure": None}
    return {"before": _mean(b.value for b, _ in both), "after": _mean(a.value for _, a in both), "chance": _mean(a.chance for _, a in both),
            "measure": both[0][0].measure}
