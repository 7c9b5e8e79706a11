"""`check`: trace a model, run the rules of a stage over what was recovered, and report."""

from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from torch import nn

from skipway import _registry
from skipway._errors import TraceError, UsageError, WiringError
from skipway.checks.records import SEVERITIES, STAGES, Expect, Finding, Report
from skipway.checks.suppress import suppressed
from skipway.rules._base import Facts, Hit
from skipway.wiring import Wiring
from skipway.wiring.forward import dtype_named, record_other_mode
from skipway.wiring.trace import trace_method, uncollected

RULES = "skipway.rules"


def check(
    model: nn.Module, *args: Any, stage: str = "graph", expect: Expect | None = None, reference: nn.Module | None = None,
    entry_points: Mapping[str, Any] | None = None, hooks: Sequence[str] = (), dtype: Any = None,
    select: Iterable[str] = (), ignore: Iterable[str] = (), **kwargs: Any,
) -> Report:
    """Recover the wiring of `model(*args, **kwargs)` and judge it.

    Args:
        stage: the most expensive stage to run: "graph" (one forward without numbers), "values" (and one real forward), "train" (and
            one forward and backward in training mode). Rules of all cheaper stages run too; `Report.rules_run` lists them.
        expect: what the owner declares; overrides what attributes of the model declare.
        reference: a model that is known to be right, called with the same inputs.
        entry_points: method name -> its inputs (a tensor, a tuple, or a dictionary): other ways into the model, held against its forward.
        hooks: module paths or patterns whose outputs are captured as contributions or stream states.
        dtype: the dtype the model is deployed in, a torch dtype or its name; it is looked at in this one.
        select, ignore: rule codes, code prefixes ("SKW2") or slugs; ignore wins.

    Raises:
        TraceError: the forward fails. UsageError: an argument is outside its set.

    Example:
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
    reference: nn.Module | None, entry_points: Mapping[str, Any] | None, hooks: Sequence[str], kind: Any,
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
    later = STAGES[1:STAGES.index(stage) + 1]
    if later and not any(r.STAGE in later for r in rules):
        notes.append(f"no rule of stage {' or '.join(later)} is installed: only the graph was looked at")
    facts = Facts(wiring, expect or Expect(), hooks=tuple(hooks), entries=entries, other=other,
                  reference=trace_method(reference, None, args, kwargs) if reference is not None else None)
    findings = [_finding(rule, hit) for rule in rules for hit in rule.check(facts)]
    kept = [f for f in findings if not suppressed(f)]
    kept.sort(key=lambda f: (-SEVERITIES.index(f.severity), f.code, _natural(f.where)))
    if notes:
        wiring = Wiring(wiring.streams, wiring.model, wiring.parameters, wiring.how, (*wiring.notes, *notes), wiring.facts)
    return Report(tuple(kept), wiring, stage, None, tuple(r.CODE for r in rules), len(findings) - len(kept))


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


def _finding(rule: ModuleType, hit: Hit) -> Finding:
    file, line = hit.line or (None, None)
    name = rule.__name__.rpartition(".")[2].replace("_", "-")
    return Finding(rule.CODE, name, hit.severity or rule.SEVERITY, hit.where, hit.message, file, line, hit.values)


def _entry(model: nn.Module, name: str, given: Any) -> Wiring:
    if not callable(getattr(model, name, None)):
        raise UsageError(f"check: entry point {name!r} is no method of {type(model).__name__}; name one that takes the given inputs")
    if isinstance(given, dict):
        return trace_method(model, name, (), given)
    return trace_method(model, name, tuple(given) if isinstance(given, (tuple, list)) else (given,), {})


def _natural(path: str) -> tuple[tuple[int, int, str], ...]:
    """Orders layers.2 before layers.10."""
    return tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in path.split("."))
