"""Small studies for tests."""

import pathlib
from typing import Any

from skipway.lab._store import Store
from skipway.lab.records import Arm, Outcome, Point, Trial


def arm(**fields: Any) -> Arm:
    usual: dict[str, Any] = {
        "name": "pre_norm", "variant": "pre_norm", "group": "", "baseline": False, "scheme": "pre_norm", "options": {},
        "factory": None,
        "task": "copy:symbols=4,length=3",
        "data": None, "depth": 1, "width": 8, "heads": 2, "norm": "layer_norm", "init": "lecun", "dtype": "float32",
        "batch": 4, "steps": 12, "warmup": 2, "schedule": "cosine", "optimizer": "adamw", "weight_decay": 0.01, "clip": 1.0, "evaluate": 4,
        "held_out": 2, "probes": (0, 12), "checkpoint": 5, "device": "cpu"}
    return Arm(**{**usual, "kind": "factory" if fields.get("factory") else "scheme", **fields})


def outcome(final: float | None, state: str = "finished", **fields: Any) -> Outcome:
    points = () if final is None else (Point("train", 4, final + 0.1, None, 1e-3, 0.5), Point("held_out", 4, final, 0.5))
    return Outcome(state, 4, final=final, points=points, **fields)


def trial(name: str = "pre_norm", lr: float = 1e-3, seed: int = 0) -> Trial:
    return Trial(name, lr, seed)


def facts(folder: pathlib.Path) -> str:
    """Everything of every trial that a kill or stop must not change."""
    store = Store(folder)
    kept = {t.id: (o.state, o.step, o.final, o.points, o.depths, o.readouts) for t, o in sorted(store.outcomes().items(), key=lambda p: p[0].id)}
    store.close()
    return repr(kept)
