"""Reads a study file (YAML); an error names the file, the line and the field."""

import pathlib
from typing import Any

import yaml
from pydantic import ValidationError

from skipway._errors import StudyError
from skipway.lab._study import Study, told


def read(path: str | pathlib.Path, **overrides: Any) -> Study:
    """The study of a file, with fields replaced by `overrides`. Raises StudyError, one line."""
    text = _text(pathlib.Path(path))
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.load(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise StudyError(f"{path}:{mark.line + 1 if mark else 1}: this is no YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise StudyError(f"{path}: this is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise StudyError(f"{path}:1: want fields such as task: copy, got {'nothing' if data is None else type(data).__name__}")
    lines: dict[tuple[Any, ...], int] = {}
    _lines(root, (), lines, str(path))
    return make({**data, **overrides}, lambda loc: _where(loc, lines, path, overrides))


def make(data: dict[str, Any], where: Any = lambda loc: "") -> Study:
    """The study of these fields. Raises StudyError, one line."""
    try:
        return Study(**data)
    except ValidationError as error:
        raise StudyError(told(error.errors(), where)) from error


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise StudyError(f"{path}: {error.strerror}; give a study file") from error
    except UnicodeDecodeError as error:
        raise StudyError(f"{path}: this is no UTF-8 text; give a study file in YAML") from error


def _lines(node: Any, path: tuple[Any, ...], lines: dict[tuple[Any, ...], int], file: str) -> None:
    """The line of every field, by its path. Raises StudyError where a field is given twice."""
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            at = key.start_mark.line + 1
            if key.value in seen:
                raise StudyError(f"{file}:{at}: {key.value}: it is given twice, first in line {seen[key.value]}; leave one out")
            seen[key.value] = lines[(*path, key.value)] = at
            _lines(value, (*path, key.value), lines, file)
    elif isinstance(node, yaml.SequenceNode):
        for k, value in enumerate(node.value):
            lines[(*path, k)] = value.start_mark.line + 1
            _lines(value, (*path, k), lines, file)


def _where(loc: tuple[Any, ...], lines: dict[tuple[Any, ...], int], path: Any, overrides: dict[str, Any]) -> str:
    if loc and loc[0] in overrides:
        return f"--{str(loc[0]).replace('_', '-')}: "
    best = 1
    at: tuple[Any, ...] = ()
    for part in loc:                                        # parts that are pydantic's own stand in no file
        if (*at, part) in lines:
            at = (*at, part)
            best = lines[at]
    return f"{path}:{best}: "
