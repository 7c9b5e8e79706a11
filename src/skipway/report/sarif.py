"""SARIF 2.1.0, the format that code scanning reads: one run a report, its rules, and its findings as results."""

import hashlib
import importlib.metadata
import json
import re
from collections.abc import Sequence
from typing import Any

from skipway.report._escape import plain
from skipway.report._files import inside, root, uri
from skipway.report._groups import SEVERITIES, groups, places
from skipway.report._paths import shown, skeleton
from skipway.report._values import encodable, jsonable

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
BASE = "%SRCROOT%"
LONGEST = 4000              # characters of a message
FINGERPRINT = "skipwayFinding/v1"


def render(report: dict[str, Any], *, color: bool = False, width: int = 100) -> str:
    """A SARIF log of one run. Colour and width do not apply."""
    return render_all([report])


def render_all(reports: Sequence[dict[str, Any]], *, color: bool = False, width: int = 100) -> str:
    """A SARIF log of one run a report."""
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(report) for report in reports]}
    return encodable(json.dumps(jsonable(log), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _run(report: dict[str, Any]) -> dict[str, Any]:
    rules = _rules(report)
    index = {rule["id"]: number for number, rule in enumerate(rules)}
    version = importlib.metadata.version("skipway")
    driver = {"name": "skipway", "version": version, "semanticVersion": version, "rules": rules}
    run: dict[str, Any] = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "invocations": [_invocation(report)]}
    if report["target"]:
        run["automationDetails"] = {"id": f"skipway/{uri(plain(report['target']).lstrip('/'))}/"}
    run["originalUriBaseIds"] = {BASE: {"description": {"text": "The root of the checkout, or the folder that skipway ran in."}}}
    run["results"] = _results(report, index)
    own = {name: report[name] for name in ("target", "stage", "suppressed")}
    run["properties"] = {**own, "sites": sum(len(s["sites"]) for s in report["wiring"]["streams"] if s["main"])}
    return run


def _invocation(report: dict[str, Any]) -> dict[str, Any]:
    fail_on = report.get("fail_on", "error")
    failed = any(SEVERITIES.index(f["severity"]) <= SEVERITIES.index(fail_on) for f in report["findings"])
    said = f"findings at or above {fail_on}" if failed else f"no finding at or above {fail_on}"
    out: dict[str, Any] = {"executionSuccessful": True, "exitCode": int(failed), "exitCodeDescription": said}
    if report.get("not_understood"):
        out = {"executionSuccessful": False, "exitCode": 2, "exitCodeDescription": "the model was not understood"}
    if report["wiring"]["notes"]:
        out["toolExecutionNotifications"] = [{"level": "note", "message": _message(note)} for note in report["wiring"]["notes"]]
    return out


def _rules(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Every rule that ran or fired, by code. A report of an older file tells no more of a rule than its findings do."""
    texts = report.get("rules", {})
    fired = {f["code"]: f for f in reversed(report["findings"])}
    return [_rule(code, texts.get(code, {}), fired.get(code, {})) for code in sorted({*report["rules_run"], *texts, *fired})]


def _rule(code: str, text: dict[str, Any], finding: dict[str, Any]) -> dict[str, Any]:
    name = plain(text.get("rule") or finding.get("rule") or code)
    summary = plain(text.get("summary") or name, 1000)
    summary = summary[:1].upper() + summary[1:]
    severity = text.get("severity") or finding.get("severity") or "warning"
    more = f"`skipway explain {code}` prints the rule with a bad and a good example."
    sections = text.get("help", "")
    # GitHub shows the name as the title of an alert and the help as its page.
    rule: dict[str, Any] = {
        "id": code, "name": name, "shortDescription": {"text": summary}, "fullDescription": {"text": summary},
        "help": {"text": f"{sections or summary}\n\n{more}", "markdown": f"{_markdown(sections) or summary}\n\n{more}"},
        "defaultConfiguration": {"level": _level(severity)}, "properties": {"tags": ["residual-connections"], "problem.severity": _problem(severity)}}
    if "stage" in text:
        rule["properties"]["stage"] = text["stage"]
    return rule


def _markdown(sections: str) -> str:
    """Titles over indented text as bold titles in front of paragraphs."""
    out: list[list[str]] = []
    for line in sections.splitlines():
        if line.strip() and not line.startswith(" "):
            out.append([f"**{line.strip().rstrip(':')}.**"])
        elif line.strip() and out:
            out[-1].append(line.strip())
    return "\n\n".join(" ".join(part) for part in out)


def _results(report: dict[str, Any], index: dict[str, int]) -> list[dict[str, Any]]:
    """One result for what is the same in repeated blocks, in a fixed order, so that equal ones keep their fingerprints."""
    seen: dict[tuple[str, ...], int] = {}
    out = []
    for group in groups(report["findings"]):
        found = [report["findings"][position] for position in group]
        place = _place(found[0], report)
        key = (found[0]["code"], place.get("artifactLocation", {}).get("uri", ""), skeleton(found[0]["where"]))
        seen[key] = seen.get(key, 0) + 1
        out.append(_result(found, index[found[0]["code"]], place, _fingerprint(*key, str(seen[key]))))
    return out


def _result(found: list[dict[str, Any]], number: int, place: dict[str, Any], fingerprint: str) -> dict[str, Any]:
    first, text = found[0], found[0]["message"]
    if len(found) > 1:
        text = f"{plain(text, LONGEST)} (x{len(found)}: {places([one['where'] for one in found])})"
    location: dict[str, Any] = {"physicalLocation": place} if place else {}
    result = {
        "ruleId": first["code"], "ruleIndex": number, "level": _level(first["severity"]), "message": _message(text),
        "locations": [{**location, "logicalLocations": _modules(found)}],
        "partialFingerprints": {FINGERPRINT: fingerprint}, "properties": {"values": first["values"]}}
    if len(found) > 1:
        result["occurrenceCount"] = len(found)
        result["properties"]["occurrences"] = [{"where": one["where"], "values": one["values"]} for one in found]
    return result


def _modules(found: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The module paths, each once."""
    paths = dict.fromkeys(plain(shown(one["where"])) for one in found)
    return [{"name": path.rpartition(".")[2] or path, "fullyQualifiedName": path, "kind": "member"} for path in paths]


def _fingerprint(*parts: str) -> str:
    """The same for the same rule, file and module whatever the layer: a finding keeps it when lines or layers are added."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _place(finding: dict[str, Any], report: dict[str, Any]) -> dict[str, Any]:
    """The finding's line; where it has none, a join of the same module, then the target's own file; {} where no file is known.

    Code scanning takes no result without a file.
    """
    file, line = finding["file"], finding["line"]
    if file is None:
        sites = [s for stream in report["wiring"]["streams"] for s in stream["sites"] if s["file"] is not None]
        site = next((s for s in sites if s["module"] == finding["where"]), None)
        file, line = (site["file"], site["line"]) if site is not None else (_own_file(report["target"] or ""), None)
    if file is None:
        return {}
    near = inside(file, root())
    artifact = {"uri": uri(file)} if near is None else {"uri": uri(near), "uriBaseId": BASE}
    return {"artifactLocation": artifact, **({"region": {"startLine": line}} if line is not None and line > 0 else {})}


def _own_file(target: str) -> str | None:
    """The file of `path/file.py:attr` or `hf:path/config.json`."""
    match = re.match(r"(?:hf:)?(.+?\.(?:py|json))(?::|$)", target)
    return match[1] if match else None


def _message(text: str) -> dict[str, str]:
    """`[text](target)` would be a link in a SARIF message; a blank keeps it text."""
    return {"text": re.sub(r"\](?=\()", "] ", plain(text, LONGEST))}


def _level(severity: str) -> str:
    return severity if severity in ("error", "warning") else "note"


def _problem(severity: str) -> str:
    """GitHub's own word for the level of a rule."""
    return {"error": "error", "warning": "warning"}.get(severity, "recommendation")
