"""What a check says: `Finding`, `Report`, and `Expect`, what the model's owner declares."""

from dataclasses import asdict, dataclass, field
from typing import Any

from skipway.wiring.structure import PLACEMENTS, Wiring

SCHEMA = "skipway.report/1"
SEVERITIES = ("note", "warning", "error")
STAGES = ("graph", "values", "train")


@dataclass(frozen=True)
class Finding:
    """What a rule says about one place."""

    code: str                       # "SKW101"
    rule: str                       # "missing-skip"
    severity: str                   # one of SEVERITIES
    where: str                      # module or parameter path ("" is the model itself)
    message: str                    # one line: what is there, what was wanted, what to do next
    file: str | None = None
    line: int | None = None
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Expect:
    """What the owner declares about the model; overrides what its attributes declare.

    placement: one of "pre", "post", "sandwich", "output", "inner", "none". parallel: True, False. scheme: a scheme's name.
    skip_scale, branch_scale: the constant on shortcut or branch. branch_init: "gpt2" and the like. stream_dtype: a dtype name.
    """

    placement: str | None = None
    parallel: bool | None = None
    scheme: str | None = None
    skip_scale: float | None = None
    branch_scale: float | None = None
    branch_init: str | None = None
    stream_dtype: str | None = None

    def __post_init__(self) -> None:
        if self.placement is not None and self.placement not in PLACEMENTS:
            raise ValueError(f"Expect(placement={self.placement!r}): want one of {', '.join(PLACEMENTS)}")


@dataclass(frozen=True)
class Report:
    """Findings of one check, in order of severity and place, and the wiring they speak of."""

    findings: tuple[Finding, ...]
    wiring: Wiring
    stage: str = "graph"
    target: str | None = None
    rules_run: tuple[str, ...] = ()         # codes of the rules that ran
    suppressed: int = 0                     # findings that a comment or the configuration took out

    @property
    def ok(self) -> bool:
        """True where no finding is an error."""
        return not any(f.severity == "error" for f in self.findings)

    def worst(self) -> str | None:
        """The highest severity among the findings, or None."""
        return max((f.severity for f in self.findings), key=SEVERITIES.index, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionary of schema "skipway.report/1"."""
        head = {"schema": SCHEMA, "target": self.target, "stage": self.stage, "ok": self.ok, "suppressed": self.suppressed}
        return {**head, "rules_run": list(self.rules_run), "findings": [asdict(f) for f in self.findings], "wiring": self.wiring.to_dict()}
