"""An extension of griffe: the comments beside the fields of a dataclass, as in docs/json.md, are the table of its attributes on the API page."""

import dataclasses
import importlib
import pathlib
import re
from types import ModuleType
from typing import Any

import _schemas
import griffe

PAGE = pathlib.Path(__file__).parent / "reference" / "api.md"
SHOWN = set(re.findall(r"^::: [\w.]+?(\w+)$", PAGE.read_text(encoding="utf-8"), re.M))


class Fields(griffe.Extension):
    """Gives the docstring of each dataclass on the page a section of attributes."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        if cls.name not in SHOWN or "dataclass" not in cls.labels or cls.docstring is None:
            return
        home = importlib.import_module(cls.module.path)
        kind = getattr(home, cls.name)
        said = _schemas.comments(kind)
        if said:
            rows = [f"    {f.name}: {words(said.get(f.name, ''), home)}" for f in dataclasses.fields(kind)]
            cls.docstring.value = "\n".join([cls.docstring.value, "", "Attributes:", *rows])


def words(said: str, home: ModuleType) -> str:
    """A comment with the values of a set that it names as "one of KINDS"; a comment that is a text in quotes alone is an example."""
    if re.fullmatch(r'"[^"]*"', said):
        return f"such as {said}"
    return re.sub(r"\bone of ([A-Z]+)\b", lambda m: f"one of {', '.join(f'`{value}`' for value in vars(home)[m[1]])}", said)
