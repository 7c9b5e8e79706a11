"""What a check says: `Finding`, `Report`, and `Expect`, what the model's owner declares."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from skipway._errors import UsageError
from skipway.wiring.structure import PLACEMENTS, Wiring

SCHEMA = "skipway.report/1"
SEVERITIES = ("note", "warning", "error")
STAGES = ("graph", "values", "train")
BRANCH_INITS = ("gpt2", "zero", "deepnorm", "t_fixup")


@dataclass(frozen=True)
class Finding:
    """What a rule says about one place."""

    code: str                       # "SKW101"
    rule: str                       # "missing-skip"
    severity: str                   # one of SEVERITIES
    where: str                      # module or parameter path ("" is the model itself)
    message: str                    # one line: what is there, what was wanted, what to do next
    file: str | None = None         # source file of the place, where one is known
    line: int | None = None         # line in that file, from 1
    values: dict[str, Any] = field(default_factory=dict)    # what the rule measured


@dataclass(frozen=True)
class Expect:
    """What the owner declares about the model; overrides what its attributes declare.

    placement: one of "pre", "post", "sandwich", "output", "inner", "none". parallel: True, False. scheme: a scheme's name.
    skip_scale, branch_scale: the constant on shortcut or branch. stream_dtype: a dtype name. branch_init: how branches start: one of "gpt2",
    "zero", "deepnorm", "t_fixup" for the spread of their output projections, or a number that LayerScale vectors start with.
    """

    placement: str | None = None
    parallel: bool | None = None
    scheme: str | None = None
    skip_scale: float | None = None
    branch_scale: float | None = None
    branch_init: str | float | None = None
    stream_dtype: str | None = None

    def __post_init__(self) -> None:
        if self.placement is not None and self.placement not in PLACEMENTS:
            raise ValueError(f"Expect(placement={self.placement!r}): want one of {', '.join(PLACEMENTS)}")
        if isinstance(self.branch_init, str) and self.branch_init not in BRANCH_INITS:
            raise ValueError(f"Expect(branch_init={self.branch_init!r}): want one of {', '.join(BRANCH_INITS)}, or a number for LayerScale")


@dataclass(frozen=True)
class RuleText:
    """What a rule says of itself."""

    rule: str                       # "missing-skip"
    severity: str                   # one of SEVERITIES: the highest that the rule gives
    stage: str                      # one of STAGES: the cheapest run that can decide it
    summary: str                    # one line: what it reports
    help: str = ""                  # its sections, each a title on a line of its own over indented text; "" for a rule without a finding here


@dataclass(frozen=True)
class Report:
    """Findings of one check, in order of severity and place, and the wiring they speak of."""

    findings: tuple[Finding, ...]
    wiring: Wiring
    stage: str = "graph"                    # one of STAGES: the most expensive that was run
    target: str | None = None               # the command-line target; null where the check was called from Python
    rules_run: tuple[str, ...] = ()         # codes of the rules that ran
    suppressed: int = 0                     # findings that a comment or the configuration took out
    fail_on: str = "error"                  # one of SEVERITIES: findings from here on make exit status 1
    rules: dict[str, RuleText] = field(default_factory=dict)    # code -> what the rule says of itself, for the rules that ran
    not_understood: tuple[str, ...] = ()    # streams whose replay failed: nothing said of them can be trusted

    @property
    def ok(self) -> bool:
        """True where no finding is an error and every stream could be rebuilt."""
        return not self.not_understood and not any(f.severity == "error" for f in self.findings)

    def worst(self) -> str | None:
        """The highest severity among the findings, or None."""
        return max((f.severity for f in self.findings), key=SEVERITIES.index, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionary of schema "skipway.report/1"."""
        head = {"schema": SCHEMA, "target": self.target, "stage": self.stage, "ok": self.ok, "fail_on": self.fail_on,
                "suppressed": self.suppressed, "rules_run": list(self.rules_run), "not_understood": list(self.not_understood)}
        return {**head, "findings": [asdict(f) for f in self.findings], "wiring": self.wiring.to_dict(),
                "rules": {code: asdict(text) for code, text in self.rules.items()}}

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, the findings and the drawing with them."""
        from skipway._registry import load
        shown: str = load("skipway.report", "drawing").notebook(self.to_dict())     # docs/decisions/0004
        return shown

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Report":
        """Inverse of `to_dict`; fields that this version does not know are left out. Raises UsageError on another schema or a missing field."""
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            got = data.get("schema") if isinstance(data, dict) else type(data).__name__
            raise UsageError(f"Report.from_dict: got schema {got!r}, want {SCHEMA!r}; write the file anew with this version")
        try:
            rules = {code: RuleText(**_known(RuleText, text)) for code, text in data.get("rules", {}).items()}
            return cls(tuple(Finding(**_known(Finding, f)) for f in data["findings"]), Wiring.from_dict(data["wiring"]), data["stage"],
                       data["target"], tuple(data["rules_run"]), data["suppressed"], data.get("fail_on", "error"), rules,
                       tuple(data.get("not_understood", ())))
        except (KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"Report.from_dict: {type(error).__name__}: {error}; the dictionary is no whole report, write it anew") from error


def _known(kind: Any, data: dict[str, Any]) -> dict[str, Any]:
    names = {f.name for f in fields(kind)}
    return {name: value for name, value in data.items() if name in names}
