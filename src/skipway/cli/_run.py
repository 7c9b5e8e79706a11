"""From a target to what was recovered of it, with the small real copy where numbers are needed: what check, diff and draw share."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from skipway._errors import NeedsDataError, SkipwayError, UsageError

if TYPE_CHECKING:
    from skipway.checks.config import Config
    from skipway.checks.records import Report
    from skipway.targets import Target
    from skipway.wiring import Wiring

NO_STREAM = "no residual stream was found: nothing is added back to the value it was computed from, so most rules have nothing to look at"
T = TypeVar("T")


def checked(target: "Target", mode: str, options: dict[str, Any], declared: "Config") -> "Report":
    """The target's report, without what [tool.skipway] leaves out; the notes say how it was made."""
    import skipway
    from skipway.checks.config import without_left_out
    taken = {*options, "reference", "config"}

    def call(made: "Target") -> "Report":
        clash = sorted(set(made.kwargs) & taken)
        if clash:
            raise SkipwayError(f"{made.name}: the forward's argument {clash[0]!r} has the name of an option of the check; give it by position")
        report: Report = skipway.check(made.model, *made.args, **options, **made.kwargs)
        return report

    report, notes = _recovered(target, mode, options["stage"], call)
    report = without_left_out(report, declared)
    return replace(report, target=target.name, wiring=_noted(report.wiring, notes))


def traced(target: "Target", mode: str = "eval") -> "Wiring":
    """The target's wiring; its notes say how it was made."""
    import skipway

    def call(made: "Target") -> "Wiring":
        wiring: Wiring = skipway.trace(made.model, *made.args, **made.kwargs)
        return wiring

    wiring, notes = _recovered(target, mode, "graph", call)
    return _noted(wiring, notes)


def _noted(wiring: "Wiring", notes: list[str]) -> "Wiring":
    if not wiring.streams:
        notes = [*notes, NO_STREAM]
    return replace(wiring, notes=tuple(dict.fromkeys((*wiring.notes, *notes))))


def _recovered(target: "Target", mode: str, stage: str, call: Callable[["Target"], T]) -> tuple[T, list[str]]:
    """What `call` gives for the target, or for a small real copy where the model has no numbers and its forward, or the stage, needs them."""
    target.model.train(mode == "train")
    if target.abstract and stage != "graph":
        loaded = target.loaded()
        if loaded is not None:
            loaded.model.train(mode == "train")
            return call(loaded), list(loaded.notes)
        small = target.shrunken()
        if small is None:
            raise UsageError(f"{target.name}: --stage {stage} needs numbers and no small copy of this model could be made; "
                             "name a factory in a file that builds one with weights")
        said = f"stage {stage} needs numbers"
    else:
        try:
            return call(target), list(target.notes)
        except NeedsDataError as error:
            small = target.shrunken()
            if small is None:
                raise
            said = str(error)
    small.model.train(mode == "train")
    notes = [*small.notes[:-1], f"{said}: {small.notes[-1]}"] if small.notes else []
    return call(small), notes
