"""`check`: trace a model, run the rules of a stage over what was recovered, and report."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from torch import nn

from skipway import _registry
from skipway._errors import TraceError, UsageError, WiringError
from skipway.checks.records import SEVERITIES, STAGES, Expect, Finding, Report, RuleText
from skipway.checks.suppress import suppressed
from skipway.rules._base import Facts, Hit
from skipway.rules._real import Runs
from skipway.wiring import Wiring
from skipway.wiring.forward import dtype_named, record_other_mode
from skipway.wiring.replay import replay_run
from skipway.wiring.trace import trace_method, uncollected

RULES = "skipway.rules"


def check(
    model: nn.Module, *args: Any, stage: str = "graph", expect: Expect | None = None, reference: nn.Module | Mapping[str, Any] | None = None,
    entry_points: Mapping[str, Any] | None = None, hooks: Sequence[str] = (), dtype: Any = None,
    select: Iterable[str] = (), ignore: Iterable[str] = (), **kwargs: Any,
) -> Report:
    """Recover the wiring of `model(*args, **kwargs)` and judge it.

    Args:
        stage: the most expensive stage to run: "graph" (one forward without numbers), "values" (and one real forward), "train" (and
            one forward and backward in training mode). Rules of all cheaper stages run too; `Report.rules_run` lists them.
        expect: what the owner declares; overrides what attributes of the model declare.
        reference: a model that is known to be right, called with the same inputs, or its state dict.
        entry_points: method name -> its inputs (a tensor, a tuple, or a dictionary): other ways into the model, held against its forward.
        hooks: module paths or patterns whose outputs are captured as contributions or stream states.
        dtype: the dtype the model is deployed in, a torch dtype or its name; it is looked at in this one.
        select, ignore: rule codes, code prefixes ("SKW2") or slugs; ignore wins.

    Raises:
        TraceError: the forward fails.
        UsageError: an argument is outside its set.

    Examples:
        >>> report = skipway.check(model, torch.randn(2, 6, 16))
        >>> [(f.code, f.where) for f in report.findings]
        [('SKW101', 'blocks.0.ffn')]
    """
    if stage not in STAGES:
        raise UsageError(f"check: stage {stage!r} is not one of {', '.join(STAGES)}")
    rules = _chosen(stage, tuple(select), tuple(ignore))
    with uncollected():
        return _check(model, args, kwargs, rules, stage, expect, reference, entry_points, hooks, dtype_named(dtype))


def _check(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], rules: list[ModuleType], stage: str, expect: Expect | None,
    reference: nn.Module | Mapping[str, Any] | None, entry_points: Mapping[str, Any] | None, hooks: Sequence[str], kind: Any,
) -> Report:
    wiring = trace_method(model, None, args, kwargs, kind)
    notes: list[str] = []
    entries = {name: _entry(model, name, given) for name, given in (entry_points or {}).items()}
    other = None
    if any(r.CODE == "SKW601" for r in rules):
        try:
            other = record_other_mode(wiring.facts.record, args, kwargs, kind)
        except TraceError as error:
            notes.append(f"the other mode was not looked at: {error}")
    runs = None if stage == "graph" else Runs(model, args, kwargs, kind, expect or Expect())
    not_understood = _not_understood(runs, notes)
    facts = Facts(wiring, expect or Expect(), hooks=tuple(hooks), entries=entries, other=other, runs=runs,
                  reference=trace_method(reference, None, args, kwargs) if isinstance(reference, nn.Module) else None,
                  reference_state=reference.state_dict() if isinstance(reference, nn.Module) else reference)
    findings, rules = _judged(rules, facts, notes)
    notes += facts.notes
    kept = [f for f in findings if not suppressed(f)]
    kept.sort(key=lambda f: (-SEVERITIES.index(f.severity), f.code, _natural(f.where)))
    if notes:
        wiring = replace(wiring, notes=(*wiring.notes, *notes))
    fired = {f.code for f in kept}
    texts = {r.CODE: _text(r, r.CODE in fired) for r in rules}
    return Report(tuple(kept), wiring, stage, None, tuple(texts), len(findings) - len(kept), rules=texts, not_understood=not_understood)


def _not_understood(runs: Runs | None, notes: list[str]) -> tuple[str, ...]:
    """Streams whose states cannot be rebuilt from what was recorded, with a note on the first place of each."""
    if runs is None:
        return ()
    if runs.own:
        notes.append("the model holds 16-bit weights: the stages values and train looked at it in the type of its weights")
    proof = replay_run(runs.real.run)
    for name in proof.failed():
        first = next(s for s in proof.sites if s.stream == name and not s.ok)
        what = f"it is {first.ulp} ulp away" if first.linked else "the state before does not lead to it"
        notes.append(f"stream {name!r} is not understood: the state after site {first.index} in `{first.module}` cannot be rebuilt from the states "
                     f"and branches recorded ({what}); something changes it where no operation was seen")
    return proof.failed()


def _judged(rules: list[ModuleType], facts: Facts, notes: list[str]) -> tuple[list[Finding], list[ModuleType]]:
    """All findings, and the rules that ran: those of stage train are left out, with a note, where the model does not run in training mode."""
    failed: TraceError | None = None
    findings: list[Finding] = []
    ran: list[ModuleType] = []
    for rule in rules:
        if failed is not None and rule.STAGE == "train":
            continue
        try:
            findings += [_finding(rule, hit) for hit in rule.check(facts)]
        except TraceError as error:
            if rule.STAGE != "train":
                raise
            failed = error
            notes.append(f"stage train was not looked at: {error}")
            continue
        ran.append(rule)
    return findings, ran


def assert_wired(model: nn.Module, *args: Any, **kwargs: Any) -> None:
    """`check` for test suites: raises WiringError, with the report as its text, where a finding is an error."""
    report = check(model, *args, **kwargs)
    if not report.ok:
        lines = [f"{f'{f.file}:{f.line}' if f.file else f.where}: {f.code} {f.rule}: {f.message}" for f in report.findings]
        raise WiringError(f"{report.wiring.model} is not wired right:\n" + "\n".join(lines))


def _chosen(stage: str, select: tuple[str, ...], ignore: tuple[str, ...]) -> list[ModuleType]:
    members = [(name, _registry.load(RULES, name)) for name in _registry.names(RULES)]
    for pattern in (*select, *ignore):
        if not any(_matches(pattern, name, rule) for name, rule in members):
            raise UsageError(f"check: {pattern!r} names no rule; give a code, the start of one, or a slug (`skipway rules` lists them)")
    wanted = [(n, r) for n, r in members if STAGES.index(r.STAGE) <= STAGES.index(stage)]
    if select:
        wanted = [(n, r) for n, r in wanted if any(_matches(p, n, r) for p in select)]
    return sorted((r for n, r in wanted if not any(_matches(p, n, r) for p in ignore)), key=lambda r: str(r.CODE))


def _matches(pattern: str, name: str, rule: ModuleType) -> bool:
    return rule.CODE.startswith(pattern) if pattern.startswith("SKW") else pattern == name


def _text(rule: ModuleType, whole: bool) -> RuleText:
    """What the rule's docstring says: its first line without the name, and the sections where it is to be whole."""
    head, _, rest = (inspect.getdoc(rule) or "").partition("\n")
    return RuleText(_slug(rule), rule.SEVERITY, rule.STAGE, head.removeprefix(f"{_slug(rule)}:").strip(), rest.strip() if whole else "")


def _slug(rule: ModuleType) -> str:
    return rule.__name__.rpartition(".")[2].replace("_", "-")


def _finding(rule: ModuleType, hit: Hit) -> Finding:
    file, line = hit.line or (None, None)
    return Finding(rule.CODE, _slug(rule), hit.severity or rule.SEVERITY, hit.where, hit.message, file, line, hit.values)


def _entry(model: nn.Module, name: str, given: Any) -> Wiring:
    if not callable(getattr(model, name, None)):
        raise UsageError(f"check: entry point {name!r} is no method of {type(model).__name__}; name one that takes the given inputs")
    if isinstance(given, dict):
        return trace_method(model, name, (), given)
    return trace_method(model, name, tuple(given) if isinstance(given, (tuple, list)) else (given,), {})


def _natural(path: str) -> tuple[tuple[int, int, str], ...]:
    """Orders layers.2 before layers.10."""
    return tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in path.split("."))
