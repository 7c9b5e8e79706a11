"""JSON Schemas of what skipway writes as JSON, made from the dataclasses: types from the annotations, texts from the comments beside the fields."""

import dataclasses
import inspect
import io
import json
import re
import sys
import tokenize
import types
import typing
from typing import Any

from skipway.checks.records import Finding, Report, RuleText
from skipway.cli.diff import SCHEMA as DIFF
from skipway.lab import Study, Variant, _sections, stats
from skipway.lab import records as lab
from skipway.probing.table import SCHEMA as PROBE
from skipway.probing.table import Row, Summary, Table
from skipway.report._load import DEFAULTS
from skipway.wiring.compare import Difference
from skipway.wiring.structure import Branch, Link, Site, Stream, Wiring

PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
DIALECT = "https://json-schema.org/draft/2020-12/schema"
NOT_WRITTEN = {"facts"}                         # fields of a dataclass that its dictionary leaves out
# What a dictionary holds beside the dataclass's own fields.
REPORT_EXTRA = {"ok": {"type": "boolean", "description": "no finding is an error"}}
SIDE = {
    "type": "object", "required": ["target", "model", "sites", "streams", "notes"],
    "properties": {
        "target": {"type": "string", "description": "the target or file as it was given"},
        "model": {"type": "string", "description": "class name of the model"},
        "sites": {"type": "integer", "description": "number of sites on main streams"},
        "streams": {"type": "integer", "description": "number of streams"},
        "notes": {"type": "array", "items": {"type": "string"}, "description": "what a reader must know about how the wiring was recovered"}}}


def schemas() -> dict[str, str]:
    """File name in docs/schema/ -> its text."""
    wiring = {kind.__name__: record(kind) for kind in (Branch, Site, Stream, Link)}
    whole = record(Wiring, {"schema": {"const": Wiring(()).to_dict()["schema"]}})
    report = record(Report, {"schema": {"const": Report((), Wiring(())).to_dict()["schema"]}, **REPORT_EXTRA})
    diff = {
        "type": "object", "description": "In what two wirings differ.", "required": ["schema", "a", "b", "equal", "differences"],
        "properties": {
            "schema": {"const": DIFF}, "a": {"$ref": "#/$defs/Side"}, "b": {"$ref": "#/$defs/Side"},
            "equal": {"type": "boolean", "description": "nothing differs"},
            "differences": {"type": "array", "items": {"$ref": "#/$defs/Difference"}}}}
    parts = {kind.__name__: record(kind) for kind in (Finding, RuleText)}
    return {
        "wiring.schema.json": page("wiring", whole, wiring),
        "report.schema.json": page("report", report, {**parts, "Wiring": whole, **wiring}),
        "diff.schema.json": page("diff", diff, {"Side": SIDE, "Difference": record(Difference)}),
        "probe.schema.json": page("probe", *probe(whole, wiring)),
        "compare.schema.json": page("compare", *compare()),
        "study.schema.json": study()}


def probe(wiring: dict[str, Any], parts: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of a probe's table, whose numbers are texts where they are not finite, and of its parts."""
    made = {kind.__name__: record(kind) for kind in (Row, Summary)}
    table = record(Table, {"schema": {"const": PROBE}})
    table["properties"]["wiring"] = {"$ref": "#/$defs/Wiring", "description": "of the probed model"}
    finite_or_text = {"type": ["number", "string"], "pattern": "^(nan|inf|-inf)$"}
    made["Row"]["properties"]["lesions"]["anyOf"][0]["additionalProperties"] = finite_or_text
    for of in (*(field for kind in made.values() for field in kind["properties"].values()), table["properties"]["loss"]):
        if of.get("type") == ["number", "null"]:
            of["type"] = ["number", "string", "null"]
            of["pattern"] = "^(nan|inf|-inf)$"
    return table, {**made, "Wiring": wiring, **parts}


def compare() -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of a comparison's record and of its parts. A trial that has not ended has the fields of `TrialRow` alone."""
    kinds = (_sections.TaskFacts, _sections.Summary, _sections.Rate, _sections.Answer, _sections.Threshold, _sections.Claim, _sections.TrialRow,
             stats.Comparison, stats.Design, stats.Difference, stats.Interval, lab.Arm, lab.Point, lab.Depth, lab.Readout, lab.Measure)
    made = {kind.__name__: record(kind) for kind in kinds}
    row, outcome = made["TrialRow"], record(lab.Outcome)
    row["properties"] = {**row["properties"], **{k: v for k, v in outcome["properties"].items() if k not in row["properties"]}}
    row["properties"]["state"] = {"enum": list(lab.STATES), "description": row["properties"]["state"]["description"]}
    made["Threshold"]["properties"]["relation"] = {"enum": ["<=", ">="]}
    return record(_sections.Record, {"schema": {"const": lab.SCHEMA}}), made


def study() -> str:
    """The schema of a study file, for editors: from the pydantic model, with the comments beside its fields."""
    made = Study.model_json_schema()
    for kind, properties in ((Study, made["properties"]), (Variant, made["$defs"]["Variant"]["properties"])):
        for name, said in comments(kind).items():
            if name in properties:
                properties[name]["description"] = said
    head = {"$schema": DIALECT, "$id": "urn:skipway:schema:study", "title": "skipway compare study file"}
    return json.dumps({**made, **head}, indent=2) + "\n"


def page(name: str, whole: dict[str, Any], parts: dict[str, Any]) -> str:
    """One schema file."""
    schema = whole["properties"]["schema"]["const"]
    head = {"$schema": DIALECT, "$id": f"urn:skipway:schema:{schema.removeprefix('skipway.')}", "title": f"skipway {name} ({schema})"}
    return json.dumps({**head, **whole, "$defs": parts}, indent=2) + "\n"


def record(kind: Any, more: dict[str, Any] | None = None) -> dict[str, Any]:
    """The schema of one dataclass. A field that an older file may lack is not required."""
    hints, said = typing.get_type_hints(kind, vars(sys.modules[kind.__module__])), comments(kind)
    properties = dict(more or {})
    for field in dataclasses.fields(kind):
        if field.name not in NOT_WRITTEN:
            properties[field.name] = {**typed(hints[field.name]), **told(kind, said.get(field.name, ""))}
    required = [name for name in properties if name not in DEFAULTS]
    summary = (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")
    return {"type": "object", "description": summary, "required": required, "properties": properties}


def typed(hint: Any) -> dict[str, Any]:
    """The schema of a value of this annotation."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return {}
    if hint in PLAIN:
        return {"type": PLAIN[hint]}
    if dataclasses.is_dataclass(hint):
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if origin in (typing.Union, types.UnionType):
        kinds = [typed(part) for part in arguments]
        return {"type": [kind["type"] for kind in kinds]} if all(kind.keys() == {"type"} for kind in kinds) else {"anyOf": kinds}
    if origin is tuple and arguments[1:] == (...,):
        return {"type": "array", "items": typed(arguments[0])}
    if origin is tuple:
        return {"type": "array", "prefixItems": [typed(part) for part in arguments], "minItems": len(arguments), "maxItems": len(arguments)}
    if origin is dict and arguments[0] is str:
        values = typed(arguments[1])
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    raise TypeError(f"docs/_schemas.py: no JSON Schema is known for {hint!r}; add it to typed()")


def told(kind: Any, comment: str) -> dict[str, Any]:
    """The comment as a description, and the values of a set that it names as "one of KINDS"."""
    if not comment:
        return {}
    if re.fullmatch(r'"[^"]*"', comment):
        return {"examples": [comment.strip('"')]}
    named = re.match(r"one of ([A-Z]+)\b(?:: )?", comment)
    if named is None:
        return {"description": re.sub(r"\b(None|True|False)\b", lambda m: {"None": "null"}.get(m[0], m[0].lower()), comment)}
    values = vars(sys.modules[kind.__module__])[named[1]]
    rest = comment[named.end():].strip()
    return {"enum": list(values), **({"description": rest} if rest else {})}


def comments(kind: Any) -> dict[str, str]:
    """Field -> the comment on its line."""
    out = {}
    lines = inspect.getsource(kind)
    for token in tokenize.generate_tokens(io.StringIO(lines).readline):
        field = re.match(r"\s+(\w+):", token.line)
        if token.type == tokenize.COMMENT and field:
            out[field[1]] = token.string.lstrip("# ")
    return out


def with_tables(text: str) -> str:
    """A page with the table of each record anew, between <!-- fields:NAME --> and <!-- /fields -->."""
    files = {name: json.loads(schema) for name, schema in schemas().items()}
    records = {**files["diff.schema.json"]["$defs"], **files["report.schema.json"]["$defs"], "Report": files["report.schema.json"],
               "Diff": files["diff.schema.json"], "ProbeTable": files["probe.schema.json"],
               **{f"Probe{part}": files["probe.schema.json"]["$defs"][part] for part in ("Row", "Summary")}}
    return re.sub(r"(<!-- fields:(\w+) -->\n).*?(<!-- /fields -->)", lambda m: f"{m[1]}{table(records[m[2]])}\n{m[3]}", text, flags=re.S)


def table(schema: dict[str, Any]) -> str:
    """One row a field."""
    rows = ["| field | type | meaning |", "|---|---|---|"]
    for name, of in schema["properties"].items():
        meaning = [of[part] for part in ("description",) if part in of]
        meaning += ["one of " + ", ".join(f"`{value}`" for value in of["enum"])] if "enum" in of else []
        meaning += ["such as " + ", ".join(f"`{value}`" for value in of["examples"])] if "examples" in of else []
        meaning += [] if name in schema["required"] else [f"may be missing: `{json.dumps(DEFAULTS[name])}`"]
        rows.append(f"| `{name}` | {kind_of(of)} | {'; '.join(meaning).replace('|', chr(92) + '|')} |")
    return "\n".join(rows)


def kind_of(of: dict[str, Any]) -> str:
    """The type of a field in words."""
    if "const" in of:
        return f"`\"{of['const']}\"`"
    if "$ref" in of:
        return str(of["$ref"].rpartition("/")[2])
    if of.get("type") == "array":
        return f"array of {kind_of(of['items'])}" if "items" in of else f"[{', '.join(kind_of(part) for part in of['prefixItems'])}]"
    if "anyOf" in of:
        return " or ".join(kind_of(part) for part in of["anyOf"])
    if isinstance(of.get("additionalProperties"), dict):
        return f"object of {kind_of(of['additionalProperties'])}"
    found = of.get("type", "string" if "enum" in of else "any")
    return found if isinstance(found, str) else " or ".join(found)
