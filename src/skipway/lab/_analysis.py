"""From the rows of a store to the record of the report: summaries, comparisons, answers. Needs no torch."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

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
    """The record of schema "skipway.compare/1".

    study       the fields of the study, as `skipway.lab.Study` takes them
    task        name, options, data, score (name of the held-out metric), chance (loss of a blind guess), fingerprint of the data
    threshold   held-out loss that counts as learned
    design      alpha, first and last number of seeds, as `stats.Design`
    complete    whether every trial has ended
    arms        `records.Arm` each, in order, with its wiring (schema "skipway.wiring/1")
    summary     one a arm: best rate, mean final loss and its interval, score, seeds, diverged, failed, seconds, tokens a second, peak memory
    rates       one a arm and learning rate: mean final loss and its interval, seeds, diverged: the sensitivity to the rate
    comparisons `stats.Comparison` each, the baseline's group by group
    answers     the claims one by one, see `answers`
    trials      arm, lr, seed, id, and `records.Outcome` of each that has ended, with its curves ("points") and "depths"; others have state alone
    environment git state, when it began, versions of the machine that planned it
    """
    design = Design(**meta["design"])
    fixed = meta.get("fixed_rates") or None
    known = tables(arms, outcomes)
    best = {a.name: (fixed or {}).get(a.name, tuned(known[a.name])) for a in arms}
    return {
        "schema": SCHEMA, "study": meta["study"], "task": meta["task"], "threshold": meta["threshold"], "design": asdict(design),
        "complete": all(state in ("finished", "diverged", "failed") for state, _ in states.values()),
        "arms": [asdict(a) for a in arms],
        "summary": [_summary(a, best[a.name], outcomes, design.alpha) for a in arms],
        "rates": [_rate(a.name, lr, row, design.alpha) for a in arms for lr, row in known[a.name].items()],
        "comparisons": [asdict(c) for c in comparisons(arms, outcomes, design, fixed)],
        "answers": answers(arms, best, outcomes, meta["threshold"]),
        "trials": [{**asdict(t), "id": t.id, **(outcomes[t].to_dict() if t in outcomes else {"state": state, "reason": why})}
                   for t, (state, why) in states.items()],
        "environment": meta["environment"],
    }


def _summary(arm: Arm, lr: float | None, outcomes: Mapping[Trial, Outcome], alpha: float) -> dict[str, Any]:
    rows = [o for t, o in outcomes.items() if t.arm == arm.name and t.lr == lr]
    kept = [o for o in rows if o.state == "finished"]
    finals = [o.final for o in kept if o.final is not None]
    return {
        "arm": arm.name, "group": arm.group, "lr": lr, "loss": asdict(interval(finals, alpha)) if finals else None,
        "score": _mean(o.score for o in kept), "seeds": len(kept), "diverged": sum(o.state == "diverged" for o in rows),
        "failed": sum(o.state == "failed" for t, o in outcomes.items() if t.arm == arm.name), "seconds": _mean(o.seconds for o in kept),
        "tokens_per_second": _mean(o.tokens_per_second for o in kept),
        "peak_memory": max((o.peak_memory for o in kept if o.peak_memory), default=None)}


def _rate(arm: str, lr: float, row: Mapping[int, float | None], alpha: float) -> dict[str, Any]:
    kept = [v for v in row.values() if v is not None]
    return {"arm": arm, "lr": lr, "loss": asdict(interval(kept, alpha)) if kept else None, "seeds": len(row), "diverged": len(row) - len(kept)}


def _mean(values: Iterable[float | None]) -> float | None:
    kept = [v for v in values if v is not None]
    return statistics.fmean(kept) if kept else None


def answers(arms: list[Arm], best: Mapping[str, float | None], outcomes: Mapping[Trial, Outcome], threshold: float) -> list[dict[str, Any]]:
    """One record a claim: {"claim", "question", "rows": one a arm, at its best rate}. Values are means over seeds.

    gradient        first_step and last_step: RMS of the gradient on the stream after the first sublayer over that after the last; below 0.1 it is
                    "vanishing" on its way back, over 10 "exploding", else "steady"
    convergence     steps until the held-out loss is at or below `threshold`; reached: seeds of which that is true
    information     share of the input that a linear readout recovers of the last state (accuracy, or R^2), before and after training, beside chance
    depth           mean final loss by depth, for arms whose names differ in depth alone
    """
    rows = {a.name: [o for t, o in sorted(outcomes.items(), key=lambda p: p[0].seed) if t.arm == a.name and t.lr == best[a.name]] for a in arms}
    made = [
        {"claim": "gradient", "question": "Does the gradient vanish or explode on its way to the first sublayer?",
         "rows": [{"arm": a.name, **_gradient(rows[a.name])} for a in arms]},
        {"claim": "convergence", "question": f"How many steps until the held-out loss is at most {threshold:.4g}?",
         "rows": [{"arm": a.name, **_convergence(rows[a.name], threshold)} for a in arms]},
        {"claim": "information", "question": "How much of the input can a linear map read off the last state?",
         "rows": [{"arm": a.name, **_information(rows[a.name])} for a in arms]}]
    if len({a.depth for a in arms}) > 1:
        made.append({"claim": "depth", "question": "Does it still train when it is deeper?",
                     "rows": [{"arm": a.name, "variant": a.variant, "depth": a.depth, "loss": _mean(o.final for o in rows[a.name]),
                               "diverged": sum(o.state == "diverged" for o in rows[a.name]), "seeds": len(rows[a.name])} for a in arms]})
    return made


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
