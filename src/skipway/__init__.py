"""skipway: the toolkit for residual (skip) connections in PyTorch.

A residual rule is a pair (read, write) on a stream, and a join is a fact of the data flow. Public names are loaded on first use,
so that the command line answers before torch is imported (docs/decisions/0003).
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skipway import lab as lab
    from skipway import models as models
    from skipway import nn as nn
    from skipway import schemes as schemes
    from skipway import surgery as surgery
    from skipway._errors import ArchitectureNotPublished as ArchitectureNotPublished
    from skipway._errors import CheckpointError as CheckpointError
    from skipway._errors import NeedsDataError as NeedsDataError
    from skipway._errors import RewireError as RewireError
    from skipway._errors import SchemeError as SchemeError
    from skipway._errors import ShapeMismatch as ShapeMismatch
    from skipway._errors import SkipwayError as SkipwayError
    from skipway._errors import StoreError as StoreError
    from skipway._errors import StudyError as StudyError
    from skipway._errors import TargetError as TargetError
    from skipway._errors import TraceError as TraceError
    from skipway._errors import UsageError as UsageError
    from skipway._errors import WiringError as WiringError
    from skipway.checks import Expect as Expect
    from skipway.checks import Finding as Finding
    from skipway.checks import Report as Report
    from skipway.checks import assert_wired as assert_wired
    from skipway.checks import check as check
    from skipway.probing.probe import probe as probe
    from skipway.surgery.rewire import rewire as rewire
    from skipway.surgery.store import reapply as reapply
    from skipway.wiring import Branch as Branch
    from skipway.wiring import Site as Site
    from skipway.wiring import Stream as Stream
    from skipway.wiring import Wiring as Wiring
    from skipway.wiring.trace import trace as trace

_HOMES = {
    "skipway._errors": (
        "SkipwayError", "TargetError", "TraceError", "NeedsDataError", "UsageError", "WiringError", "SchemeError", "ShapeMismatch",
        "StudyError", "StoreError", "RewireError", "CheckpointError", "ArchitectureNotPublished"),
    "skipway.checks": ("Expect", "Finding", "Report", "assert_wired", "check"),
    "skipway.probing": ("probe",),
    "skipway.surgery": ("reapply", "rewire"),
    "skipway.wiring": ("Branch", "Site", "Stream", "Wiring", "trace"),
}


_PARTS = ("lab", "models", "nn", "schemes", "surgery")


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return importlib.import_module(f"skipway.{name}")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'skipway' has no attribute {name!r}; it has {', '.join(__dir__())}")


def __dir__() -> list[str]:
    return sorted([*_PARTS, *(name for names in _HOMES.values() for name in names)])
