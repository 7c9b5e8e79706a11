"""The plan of a study for a person: arms with their cost, trials, expected time."""

import math
from typing import TYPE_CHECKING

from skipway.report._compare.text import table
from skipway.report._escape import plain

if TYPE_CHECKING:
    from skipway.lab import Plan


ENOUGH = 5              # seeds from which on a stack was measured to be faster, for a task that says so


def text(plan: "Plan", engine: str | None = None) -> str:
    """With a newline at its end. engine: the one that was asked for."""
    rows = [["variant", "blocks", "width", "parameters", "GFLOP / step", "ms / step", "steps", "rates", "starts equal"]]
    for arm in plan.arms:
        share = "baseline" if arm.baseline else f"{arm.paired / arm.shared:.0%} of {arm.shared:,}" if arm.shared else "nothing shared"
        rows.append([plain(arm.name), str(arm.depth), str(arm.width), f"{arm.parameters:,}", f"{arm.flops / 1e9:.3g}", f"{1000 * arm.seconds:.3g}",
                     str(arm.steps), ", ".join(f"{lr:g}" for lr in plan.rates[arm.name]), share])
    notes = _own_start(plan) + [f"  note on {plain(arm.name)}: {plain(n, 500)}" for arm in plan.arms for n in arm.notes]
    head = f"task {plain(str(plan.study.task), 200)}, seeds {plan.seeds[0]} to {plan.seeds[-1]}"
    more = f", then one seed more at a time until decided, at most {plan.study.max_seeds}" if plan.study.until_decided else ""
    many = len(plan.trials)
    time = f"{many} trials, {plan.workers} at once: about {duration(plan.seconds)}{' until the first look' if more else ''}"
    return "\n".join([*_claim(plan), head + more, table(rows), *notes, time, *_engine(plan, engine), ""])


def _own_start(plan: "Plan") -> list[str]:
    """What a share below 100 % says."""
    if all(arm.paired == arm.shared for arm in plan.arms if arm.shared):
        return []
    return ["  starts equal below 100 %: of the parameters that both it and the baseline have, by name and shape, the variant starts the rest in its "
            "own way"]


def _engine(plan: "Plan", engine: str | None) -> list[str]:
    """What is to be known of it, or a faster one for this plan."""
    if engine == "together":
        return ["  engine together: the seeds of each variant and rate train as one stack; numbers are those of local but for the last digits"]
    stacked = all(a.optimizer != "muon" and a.dtype != "bfloat16" for a in plan.arms)
    if engine is None and plan.task.together and len(plan.seeds) >= ENOUGH and stacked:
        return [f"  --engine together trains the {len(plan.seeds)} seeds of each variant and rate as one stack, which is faster for this task"]
    return []


def _claim(plan: "Plan") -> list[str]:
    """A preset's, before anything runs."""
    if plan.study.preset is None:
        return []
    from skipway.lab import presets
    member = presets.load(plan.study.preset)
    return [f"preset {plan.study.preset}: {member.CLAIM}", f"  source: {member.SOURCE}"]


def duration(seconds: float) -> str:
    """"45 s", "12 min", "3 h 20 min"."""
    if seconds < 100:
        return f"{math.ceil(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
