"""Comparisons of residual designs: a study has variants, a variant has trials; each ends in a row, and the rows in a verdict.

    study = skipway.lab.Study(task="copy", variants=["pre_norm", "none"], seeds=3)
    report = skipway.lab.run(study, "out")
    report["comparisons"][0]["verdict"]

Names are loaded on first use: a report is rebuilt from its store without torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skipway.lab._plan import Plan as Plan
    from skipway.lab._plan import plan as plan
    from skipway.lab._run import resume as resume
    from skipway.lab._run import run as run
    from skipway.lab._study import Study as Study
    from skipway.lab._study import Variant as Variant
    from skipway.lab._study_file import read as read
    from skipway.lab.tasks import Task as Task

_HOMES = {"_plan": ("Plan", "plan"), "_run": ("resume", "run"), "_study": ("Study", "Variant"), "_study_file": ("read",), "tasks": ("Task",)}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__dir__())}")


def __dir__() -> list[str]:
    return sorted(name for names in _HOMES.values() for name in names)
