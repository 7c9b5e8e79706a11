"""Studies that put a known fact to the test, one a file, found by file name: each states its claim, its source and its thresholds. Needs no torch.

    skipway.lab.run(skipway.lab.Study(preset="classroom"), "out")["claim"]["held"]

A member gives
    CLAIM, SOURCE       texts
    STUDY               fields of `skipway.lab.Study`
    checks(seen)        what must be true of the numbers, as `Check` each; the claim held where all did
Thresholds come from the source, not from a result. Other distributions add presets with an entry point of the group `skipway.lab.presets`.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from skipway import _registry
from skipway.lab._names import near
from skipway.lab._sections import Claim, Threshold
from skipway.lab.presets._base import Check as Check
from skipway.lab.presets._base import Seen as Seen


def names() -> tuple[str, ...]:
    """Names of all presets."""
    return _registry.names(__name__)


def load(name: str) -> ModuleType:
    """A preset's module. Raises StudyError with the nearest names."""
    if name not in names():
        raise near(name, names(), "preset")
    return _registry.load(__name__, name)


def judged(name: str, record: Mapping[str, Any]) -> Claim:
    """The claim of a preset and what a report's record says of it; held is None until every trial has ended."""
    member = load(name)
    found: list[Check] = member.checks(Seen(record))
    held = all(c.held for c in found) if record["complete"] else None
    return Claim(name, member.CLAIM, member.SOURCE, held, tuple(Threshold(c.what, c.value, c.relation, c.bound, c.held) for c in found))
