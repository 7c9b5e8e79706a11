"""Records of comparisons built by hand, through the real analysis, for the report's formats."""

import json
import math
from typing import Any

import numpy as np

from skipway.lab._analysis import report
from skipway.lab.records import Arm, Depth, Outcome, Point, Readout, Trial
from skipway.wiring.structure import Wiring

from . import samples

NAMES = ("pre_norm", "none:normed=true", "post_norm", "rezero", "highway", "deepnorm", "hyper:lanes=4", "mhc:lanes=4", "layer_scale:init=1e-4",
         "sandwich", "fixup", "densenet")


def wiring(depth: int, model: str = "Net") -> dict[str, Any]:
    """Of a stack; as it stands in a report."""
    streams = json.loads(json.dumps(samples.report(samples.stack(depth, None), ())["wiring"]["streams"]))
    return {**Wiring((), model, 1234).to_dict(), "streams": streams}


def arm(name: str, baseline: bool = False, group: str = "", depth: int = 6, lanes: int = 1, **fields: Any) -> Arm:
    usual: dict[str, Any] = {
        "variant": name, "scheme": name.partition(":")[0], "options": {}, "factory": None, "task": "copy:length=16", "data": None, "width": 128,
        "heads": 4, "norm": "layer_norm", "init": "lecun", "dtype": "float32", "batch": 32, "steps": 500, "warmup": 20, "schedule": "cosine",
        "optimizer": "adamw", "weight_decay": 0.01, "clip": 1.0, "evaluate": 20, "held_out": 8, "probes": (0, 250, 500), "checkpoint": 100,
        "device": "cpu", "parameters": 1_200_000 + 1000 * lanes, "flops": 3_000_000 * depth, "wiring": wiring(depth + lanes - 1)}
    return Arm(name, group=group, baseline=baseline, depth=depth, **{**usual, **fields})


def outcome(rng: np.random.Generator, of: Arm, lr: float, floor: float, broken_at: int | None = None) -> Outcome:
    """A trial whose loss falls from 3 to about `floor`; broken_at: the step at which it diverged."""
    points, noise = [], rng.normal(0, 0.02)
    for step in range(0, of.steps + 1, of.evaluate):
        if broken_at is not None and step > broken_at:
            break
        loss = floor + (3 - floor) * math.exp(-step / 120) + noise + 0.3 * abs(math.log10(lr / 1e-3))
        points += [Point("held_out", step, loss, 1 / (1 + loss)), Point("train", step, loss * 0.95, None, lr, 0.5)][:1 if step == 0 else 2]
    steps = [step for step in (0, 250, 500) if broken_at is None or step < broken_at]
    depths = [Depth(step, i, i // 2, ("self_attention", "ffn")[i % 2], (1 + 0.1 * i) * rng.uniform(0.9, 1.1), 0.5, 0.5 / (1 + i),
                    1e-3 * 1.1 ** i * rng.uniform(0.9, 1.1)) for step in steps for i in range(2 * of.depth)]
    if broken_at is not None:
        return Outcome("diverged", broken_at, f"at step {broken_at}: the loss is not finite", points=tuple(points), depths=tuple(depths), seconds=1.0)
    final = points[-2].loss
    return Outcome("finished", of.steps, final=final, score=0.5, points=tuple(points), depths=tuple(depths),
                   readouts=(Readout(0, 0.2, "accuracy", 0.1), Readout(of.steps, 0.9, "accuracy", 0.1)),
                   seconds=20 + 3 * len(of.options) + rng.uniform(), wall=25.0, tokens_per_second=4e4, peak_memory=300_000_000,
                   environment={"torch": "2.14"})


def study(arms: "list[Arm]", seeds: int = 5, rates: "tuple[float, ...]" = (3e-4, 1e-3, 3e-3), **meta: Any) -> dict[str, Any]:
    """A whole study; arm 1 is worse, the last diverges at the highest rate."""
    rng, outcomes = np.random.default_rng(0), {}
    for number, one in enumerate(arms):
        for lr in rates:
            for seed in range(seeds):
                lost = number == len(arms) - 1 and lr == max(rates) and len(rates) > 1 and seed % 2 == 0
                floor = 0.2 + 0.9 * (number == 1) + 0.001 * number
                outcomes[Trial(one.name, lr, seed)] = outcome(rng, one, lr, floor, 260 if lost else None)
    task = {"name": "copy", "options": {}, "data": None, "score": "accuracy", "chance": 3.0, "fingerprint": "0"}
    known = {"study": {"task": "copy:length=16", "seeds": seeds}, "task": task,
             "threshold": 1.5, "design": {"alpha": 0.05, "first": seeds, "last": seeds}, "fixed_rates": None,
             "environment": {"git": {"commit": "abc"}, "torch": "2.14"}}
    states = {t: (o.state, o.reason) for t, o in outcomes.items()}
    made: dict[str, Any] = json.loads(json.dumps(report({**known, **meta}, arms, states, outcomes), allow_nan=False))
    return made


def small() -> dict[str, Any]:
    """Two arms, as `skipway compare copy` has."""
    return study([arm("none:normed=true", True), arm("pre_norm")], seeds=3)


def large() -> dict[str, Any]:
    """Twelve arms and five seeds, at six blocks."""
    return study([arm(name, i == 0, lanes=1 + i % 3) for i, name in enumerate(NAMES)])


def grouped() -> dict[str, Any]:
    """Two variants at two depths."""
    return study([arm(f"{name} depth={d}", i == 0, f"depth={d}", d, variant=name)
                  for d in (2, 12) for i, name in enumerate(("pre_norm", "none"))], seeds=3)


def bare() -> dict[str, Any]:
    """One arm, one rate, one seed, a factory without a wiring."""
    return study([arm("file.py:build", True, wiring={}, scheme=None, factory="file.py:build")], seeds=1, rates=(1e-3,))


def claimed() -> dict[str, Any]:
    """A preset's study: two of its three numbers are as claimed."""
    arms = [arm("none:normed=true", True, measures=("update",)), arm("pre_norm", measures=("update",))]
    return study(arms, study={"task": "copy", "seeds": 5, "preset": "classroom"})


def hostile() -> dict[str, Any]:
    """Every name and text is somebody's bad joke; one trial failed with another, one has not ended."""
    names = samples.NASTY[:-1]
    arms = [arm(name, i == 0, group=samples.SCRIPT, depth=2, wiring={**wiring(1, samples.IMAGE)}, options={name: name}, factory=name, notes=(name,))
            for i, name in enumerate(names)]
    made = study(arms, seeds=2, rates=(1e-3, 1e-2))
    for one in made["arms"]:
        for stream in one["wiring"]["streams"]:
            stream["name"] = stream["stem"] = samples.QUOTES
    made["trials"][0].update(state="failed", reason=samples.SCRIPT)
    made["trials"][1] = {k: made["trials"][1][k] for k in ("arm", "lr", "seed", "id")} | {"state": "waiting", "reason": ""}
    made["complete"] = False
    made["task"] = {**made["task"], "name": samples.SCRIPT, "score": samples.IMAGE}
    made["environment"] = {samples.SCRIPT: {samples.IMAGE: samples.QUOTES}}
    made["answers"] = [{**a, "question": samples.SCRIPT} for a in made["answers"]]
    made["claim"] = {"preset": samples.SCRIPT, "claim": samples.IMAGE, "source": samples.QUOTES, "held": None, "checks": [
        {"what": samples.SCRIPT, "value": None, "relation": "<=", "bound": 1.0, "held": False}]}
    return made
