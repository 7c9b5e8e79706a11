"""What a person sees while a study runs: a live table on a terminal, plain lines elsewhere. All of it goes to stderr."""

import math
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from skipway.cli._compare_plan import duration
from skipway.report._escape import plain

if TYPE_CHECKING:
    from skipway.lab.engines import Event
    from skipway.lab.records import Trial

BARS = "▁▂▃▄▅▆▇█"
SHOWN = 24              # losses of a sparkline
EVERY = 15.0            # seconds between two plain lines about running trials


def sparkline(values: "list[float]") -> str:
    """The last losses as bars from the smallest to the largest; × where one is not finite."""
    kept = [v for v in values if math.isfinite(v)]
    low, high = (min(kept), max(kept)) if kept else (0.0, 0.0)
    step = (high - low) / (len(BARS) - 1) or 1.0
    return "".join(BARS[int((v - low) / step)] if v in kept else "×" for v in values)


class Progress:
    """What is known of the study's trials; both views are drawn of it."""

    def __init__(self, total: int, steps: dict[str, int]) -> None:
        self.total, self.steps = total, steps
        self.done = self.diverged = self.failed = 0
        self.running: dict[Trial, list[float]] = {}
        self.at: dict[Trial, int] = {}
        self.start = time.monotonic()

    def heard(self, event: "Event") -> str:
        """Takes an event in; gives a line where a trial has ended, or lost its worker."""
        trial = event.trial
        if event.kind == "began":
            self.running[trial], self.at[trial] = [], 0
        elif event.kind == "step":
            self.at[trial] = event.step
            self.running[trial] = [*self.running.get(trial, []), event.loss][-SHOWN:]
        else:
            self.running.pop(trial, None)
            self.at.pop(trial, None)
        if event.kind == "again":
            return f"{name(trial)}  its worker was lost, so it runs again from its last checkpoint"
        return self._ended(event) if event.kind in ("ended", "lost") else ""

    def _ended(self, event: "Event") -> str:
        self.done += 1
        self.total = max(self.total, self.done)
        outcome: dict[str, Any] = event.outcome or {"state": "failed", "reason": event.reason}
        self.diverged += outcome["state"] == "diverged"
        self.failed += outcome["state"] == "failed"
        final = outcome.get("final")
        said = f"held-out loss {final:.4g}" if final is not None else f"{outcome['state']}: {plain(outcome['reason'], 200)}"
        return f"{self.done}/{self.total}  {name(event.trial)}  {said}"

    def left(self) -> float | None:
        """Seconds, by what the done part took; None before there is something to go by."""
        parts = self.done + sum(step / self.steps.get(t.arm, 1) for t, step in self.at.items())
        return (time.monotonic() - self.start) * (self.total - parts) / parts if parts > 0 else None

    def line(self) -> str:
        """Everything in one line."""
        left = self.left()
        bad = "".join(f", {n} {word}" for n, word in ((self.diverged, "diverged"), (self.failed, "failed")) if n)
        rest = f", about {duration(left)} left" if left is not None else ""
        return f"{self.done} of {self.total} trials done{bad}, {len(self.running)} running{rest}"


def name(trial: "Trial") -> str:
    return f"{plain(trial.arm)} at {trial.lr:g}, seed {trial.seed}"


class View:
    """A context that hears events; draws on a terminal, prints elsewhere, is silent when `quiet`."""

    def __init__(self, total: int, steps: dict[str, int], quiet: bool = False) -> None:
        self.progress, self.quiet = Progress(total, steps), quiet
        self.live: Any = None
        self.last = time.monotonic()

    def __enter__(self) -> "View":
        if sys.stderr.isatty() and not self.quiet:
            from rich.console import Console
            from rich.live import Live
            self.live = Live(self._drawn(), console=Console(stderr=True), refresh_per_second=4, transient=True)
            self.live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.live is not None:
            self.live.__exit__(kind, error, trace)

    def heard(self, event: "Event") -> None:
        """Shows what an event changes."""
        line = self.progress.heard(event)
        if self.quiet:
            return
        if self.live is not None:
            if line:
                self.live.console.print(line, markup=False, highlight=False)
            self.live.update(self._drawn())
        elif line:
            print(line, file=sys.stderr, flush=True)
        elif event.kind == "step" and time.monotonic() - self.last > EVERY:
            self.last = time.monotonic()
            print(self.progress.line(), file=sys.stderr, flush=True)

    def _drawn(self) -> Any:
        from rich.table import Table
        from rich.text import Text
        made = Table(title=Text(self.progress.line()), box=None, title_justify="left", show_header=False)
        for trial, losses in self.progress.running.items():
            step, steps = self.progress.at[trial], self.progress.steps.get(trial.arm, 0)
            made.add_row(Text(name(trial)), f"{step} of {steps}", sparkline(losses), f"{losses[-1]:.4g}" if losses else "")
        return made
