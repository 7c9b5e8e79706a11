"""reference/tasks.md: the registries of the laboratory, from the docstrings of their members."""

import importlib.util
import inspect

from skipway._registry import load, names

HEAD = """# Tasks

What `skipway compare TASK` can train on, how its variants are given, what it measures and the prepared studies. [Comparing](../compare.md) says how
a study is planned and judged. Options stand behind a colon: `copy:length=16,symbols=8`.
"""
KINDS = (("tasks", "Tasks"), ("variants", "Kinds of variants"), ("measures", "Measures"), ("presets", "Presets"), ("engines", "Engines"))


def tasks_page() -> str:
    """The page."""
    parts = [HEAD]
    for kind, title in KINDS:
        package = f"skipway.lab.{kind}"
        if importlib.util.find_spec(package) is None:
            continue
        parts.append(f"## {title}\n")
        for name in names(package):
            text = inspect.getdoc(load(package, name)) or ""
            parts.append(f"### {name}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)
