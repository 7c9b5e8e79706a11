"""Reports built by hand, for the formats that programs read."""

from typing import Any

from skipway.checks.records import Finding, Report, RuleText
from skipway.wiring.structure import Branch, Site, Stream, Wiring

HELP = "What it does\n    Reports a sublayer\n    with no path around it.\nWhat to do\n    Add `x +`."


def site(index: int, module: str, file: str | None = None, line: int | None = None, kind: str = "ffn") -> Site:
    return Site(index, index, module, file, line, "pre", "LayerNorm", (), "identity", 1.0, "none", 1.0, False, False, (Branch(kind, (module,)),))


def finding(where: str = "layers.0.ffn", message: str = "no path goes around it", severity: str = "error", file: str | None = None,
            line: int | None = None, code: str = "SKW101", **values: Any) -> Finding:
    return Finding(code, {"SKW101": "missing-skip", "SKW205": "double-norm"}[code], severity, where, message, file, line, values)


def report(*findings: Finding, sites: tuple[Site, ...] = (), target: str | None = "net.py:Net", notes: tuple[str, ...] = (),
           **other: Any) -> Report:
    wiring = Wiring((Stream("net", True, 1, "net.embed", "net.norm", sites or (site(0, "layers.0"),)),), "Net", 10, notes=notes)
    rules = {"SKW101": RuleText("missing-skip", "error", "graph", "a sublayer with no path around it", HELP),
             "SKW205": RuleText("double-norm", "note", "graph", "a norm directly follows a norm")}
    return Report(findings, wiring, target=target, rules_run=tuple(rules), rules=rules, **other)
