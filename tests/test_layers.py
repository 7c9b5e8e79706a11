"""Who may import whom: the table of the design, held by reading the imports of every file."""

import ast
import pathlib
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[1]
SRC = ROOT / "src" / "skipway"

# Part -> parts it may import besides itself and the files of level 0. None: no limit inside the package.
LOW = {"_errors", "_load", "_registry"}
ALLOWED: dict[str, set[str] | None] = {
    "_errors": set(), "_load": set(), "_registry": set(),
    "ops": set(),
    "kernels": {"ops"},
    "schemes": {"ops", "kernels"},
    "wiring": set(),
    "nn": {"schemes", "ops"},
    "rules": {"wiring"}, "probing": {"wiring"}, "surgery": {"wiring", "schemes"},
    "models": {"nn", "schemes"},
    "checks": {"rules", "wiring"},
    "targets": {"ops", "kernels", "schemes", "wiring", "nn", "rules", "probing", "surgery", "models", "checks"},
    "lab": {"ops", "kernels", "schemes", "wiring", "nn", "rules", "probing", "surgery", "models", "checks"},
    "report": set(),
    "cli": None, "pytest_plugin": None, "__init__": None, "__main__": None,
}
NO_TORCH = {"_errors", "_load", "_registry", "report"}
# Folders whose files without a leading underscore are members: a member never imports a sibling.
REGISTRIES = ("rules", "schemes", "models", "report", "targets", "cli",
              "lab/tasks", "lab/engines", "surgery/actions", "lab/measures", "lab/presets", "lab/variants")
FILES = sorted(SRC.rglob("*.py"))


def part_of(file: pathlib.Path) -> str:
    inside = file.relative_to(SRC).parts
    return inside[0] if len(inside) > 1 else inside[0].removesuffix(".py")


def imports(file: pathlib.Path) -> Iterator[tuple[str, int, bool]]:
    """(dotted name, line, inside a function or under TYPE_CHECKING) of every import of the file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    late = {id(n) for top in ast.walk(tree) if isinstance(top, (ast.FunctionDef, ast.AsyncFunctionDef)) or _typing_only(top) for n in ast.walk(top)}
    package = ("skipway", *file.relative_to(SRC).parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in late
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[:len(package) - node.level + 1]) if node.level else ""
            module = ".".join(p for p in (base, node.module or "") if p)
            for alias in node.names:
                yield f"{module}.{alias.name}", node.lineno, id(node) in late


def _typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def broken(file: pathlib.Path) -> list[str]:
    """What a file imports and may not."""
    part = part_of(file)
    allowed = ALLOWED[part]
    out = []
    for name, line, late in imports(file):
        parts = name.split(".")
        if parts[0] == "torch" and part in NO_TORCH:
            out.append(f"{file.relative_to(SRC)}:{line}: {part} imports torch")
        if parts[0] != "skipway":
            if parts[0] == "torch" and part == "cli" and not late:
                out.append(f"{file.relative_to(SRC)}:{line}: torch is imported before the command runs")
            continue
        other = parts[1] if len(parts) > 1 else "__init__"
        if allowed is not None and other != part and other not in allowed | LOW:
            out.append(f"{file.relative_to(SRC)}:{line}: {part} imports skipway.{other}")
        if part == "cli" and other not in {"cli", "report"} | LOW and not late:
            out.append(f"{file.relative_to(SRC)}:{line}: cli imports skipway.{other} outside the command function")
        home = file.relative_to(SRC).parent
        siblings = {f.stem for f in file.parent.glob("*.py") if not f.stem.startswith("_")} if home.as_posix() in REGISTRIES else set()
        at = 1 + len(home.parts)
        if file.stem in siblings and parts[1:at] == [*home.parts] and len(parts) > at and parts[at] in siblings - {file.stem}:
            out.append(f"{file.relative_to(SRC)}:{line}: the member {file.stem} imports its sibling {parts[at]}")
    return out


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SRC)))
def test_imports(file: pathlib.Path) -> None:
    assert broken(file) == []


def test_every_part_is_in_the_table() -> None:
    assert {part_of(f) for f in FILES} <= set(ALLOWED)


@pytest.mark.parametrize(("where", "text", "part"), [
    ("report/planted.py", "import torch", "report imports torch"),
    ("report/planted.py", "from skipway.wiring import trace", "report imports skipway.wiring"),
    ("wiring/planted.py", "def f():\n    from ..checks import records", "wiring imports skipway.checks"),
    ("rules/planted.py", "from skipway.rules.self_add import check", "imports its sibling self_add"),
    ("rules/planted.py", "from .self_add import check", "imports its sibling self_add"),
    ("lab/tasks/planted.py", "from skipway.lab.tasks.copy import Copy", "imports its sibling copy"),
    ("cli/planted.py", "import torch", "torch is imported before the command runs"),
    ("cli/planted.py", "from skipway.targets import resolve", "outside the command function"),
])
def test_a_planted_import_is_seen(where: str, text: str, part: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    for name in ("report", "wiring", "rules", "cli", "lab/tasks"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "rules" / "self_add.py").write_text("")
    (tmp_path / "lab" / "tasks" / "copy.py").write_text("")
    (tmp_path / where).write_text(text)
    monkeypatch.setattr(f"{__name__}.SRC", tmp_path)
    assert any(part in line for line in broken(tmp_path / where))
