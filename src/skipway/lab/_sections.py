"""The sections of a report's record, schema "skipway.compare/1". Needs no torch.

Numbers are finite or None; None means: not measured, or not finite. docs/schema/compare.schema.json is made of these and of what they hold.
"""

from dataclasses import dataclass
from typing import Any

from skipway.lab.records import Arm
from skipway.lab.stats import Comparison, Design, Interval


@dataclass(frozen=True)
class TaskFacts:
    """What was learned."""

    name: str                       # in skipway.lab.tasks, or of one's own
    options: dict[str, Any]         # of the task
    data: str | None                # path of the data file
    score: str                      # name of the held-out metric
    chance: float                   # loss of a blind guess
    fingerprint: str                # hash of the data's first rows


@dataclass(frozen=True)
class Summary:
    """One arm at its best learning rate; means over the seeds that finished."""

    arm: str                        # name of the arm
    group: str                      # arms of one group are compared with one another
    lr: float | None                # its best learning rate; None where nothing has ended
    loss: Interval | None           # final held-out loss
    score: float | None             # the task's metric
    seeds: int                      # that finished
    diverged: int                   # seeds that diverged at this rate
    failed: int                     # trials that failed, at all rates
    seconds: float | None           # of training steps, a trial
    tokens_per_second: float | None     # of training steps
    peak_memory: int | None         # bytes, of the largest trial


@dataclass(frozen=True)
class Rate:
    """One arm at one learning rate: the sensitivity to the rate."""

    arm: str                        # name of the arm
    lr: float                       # learning rate
    loss: Interval | None           # final held-out loss, over the seeds that finished
    seeds: int                      # that finished or diverged
    diverged: int                   # of those, the ones that diverged


@dataclass(frozen=True)
class Answer:
    """One claim put to every arm, at its best rate.

    gradient        first_step and last_step: RMS of the gradient on the stream after the first sublayer over that after the last; below 0.1 it is
                    "vanishing" on its way back, over 10 "exploding", else "steady"
    convergence     steps until the held-out loss is at or below the threshold; reached: seeds of which that is true
    information     share of the input that a linear readout recovers of the last state (accuracy, or R^2), before and after training, beside chance
    depth           mean final loss by depth; only where arms differ in depth
    measured        one row an arm, measure and step: mean, lowest and highest over seeds; only where the study asked for measures
    """

    claim: str                      # gradient, convergence, information, depth or measured
    question: str                   # in words
    rows: tuple[dict[str, Any], ...]    # by arm


@dataclass(frozen=True)
class Threshold:
    """One number of a preset beside its threshold."""

    what: str                       # what the number is
    value: float | None             # None: there is no such number, so the check fails
    relation: str                   # "<=" or ">="
    bound: float                    # fixed in the preset's file
    held: bool                      # whether the number is on the right side


@dataclass(frozen=True)
class Claim:
    """A preset's claim."""

    preset: str                     # name in skipway.lab.presets
    claim: str                      # in words
    source: str                     # where it is published
    held: bool | None               # whether every check held; None until all trials have ended
    checks: tuple[Threshold, ...]   # every number that it rests on


@dataclass(frozen=True)
class TrialRow:
    """One run. The fields of `Outcome` follow where it has ended."""

    arm: str                        # name of the arm
    lr: float                       # learning rate
    seed: int                       # of data and start
    id: str                         # twelve hexadecimal digits that depend on the three
    state: str                      # waiting, running, finished, diverged or failed
    reason: str                     # of a divergence or a failure


@dataclass(frozen=True)
class Record:
    """A whole study, as report.json holds it and `skipway.lab.run` gives it."""

    study: dict[str, Any]           # the fields of the study, as `skipway.lab.Study` takes them
    task: TaskFacts
    threshold: float                # held-out loss that counts as learned
    design: Design
    complete: bool                  # whether every trial has ended
    arms: tuple[Arm, ...]           # in order
    summary: tuple[Summary, ...]    # one an arm, in order
    rates: tuple[Rate, ...]         # one an arm and learning rate
    comparisons: tuple[Comparison, ...]     # with the baseline, group by group
    answers: tuple[Answer, ...]     # the claims one by one
    claim: Claim | None             # of a preset; None for other studies
    trials: tuple[TrialRow, ...]    # every one, with its curves ("points") and "depths" where it has ended
    environment: dict[str, Any]     # git state, when it began, versions of the machine that planned it
