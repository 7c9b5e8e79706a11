"""A rule's page as plain text values, read from its module: what `skipway explain`, `skipway rules` and docs/generate.py print."""

import ast
import inspect
import textwrap
from dataclasses import dataclass
from difflib import get_close_matches
from types import ModuleType

from skipway._errors import UsageError
from skipway._registry import load, names

PACKAGE = "skipway.rules"
SECTIONS = ("What it does", "Why it matters", "Fires on", "Quiet on", "What to do")


@dataclass(frozen=True)
class Page:
    """One rule for a reader. shared: the source that bad and good both use; "" where there is none."""

    code: str
    slug: str
    stage: str
    severity: str
    summary: str
    sections: dict[str, str]
    bad: str
    good: str
    shared: str


def pages() -> list[Page]:
    """The pages of all rules, by code."""
    return sorted((page(name) for name in names(PACKAGE)), key=lambda p: p.code)


def find(text: str) -> Page:
    """The page of a code or a slug. Raises UsageError with near names."""
    if text.lower() in names(PACKAGE):
        return page(text.lower())
    everything = pages()
    match = next((p for p in everything if p.code == text.upper()), None)
    if match is None:
        near = [w for t, known in ((text.upper(), [p.code for p in everything]), (text.lower(), [p.slug for p in everything]))
                for w in get_close_matches(t, known, n=2)]
        hint = f"; near it: {', '.join(near)}" if near else ""
        raise UsageError(f"explain: got {text!r}, want a rule's code or name{hint}; `skipway rules` lists all")
    return match


def page(slug: str) -> Page:
    """The page of one rule."""
    module = load(PACKAGE, slug)
    summary, sections = parse(inspect.getdoc(module) or "", slug)
    bad, good, shared = examples(module)
    return Page(module.CODE, slug, module.STAGE, module.SEVERITY, summary, sections, bad, good, shared)


def parse(doc: str, slug: str) -> tuple[str, dict[str, str]]:
    """The first line without the rule's name, and the text of each section. Raises UsageError where a section is missing."""
    head, *rest = doc.splitlines() or [""]
    sections: dict[str, list[str]] = {}
    now: list[str] = []
    for line in rest:
        title = line.strip().rstrip(":")
        if title in SECTIONS and not line.startswith(" "):
            now = sections.setdefault(title, [])
        else:
            now.append(line)
    missing = [title for title in SECTIONS if title not in sections]
    if missing:
        raise UsageError(f"rule {slug}: its docstring lacks {', '.join(missing)}; add the section with its title on a line of its own")
    texts = {title: textwrap.dedent("\n".join(sections[title])).strip() for title in SECTIONS}
    return head.removeprefix(f"{slug}:").strip(), texts


def examples(module: ModuleType) -> tuple[str, str, str]:
    """The source of bad and of good, each with the definitions that only it uses, and of those that both use."""
    source = inspect.getsource(module)
    tree = ast.parse(source)
    own = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    bad, good = (_uses(own[name], own) if name in own else set() for name in ("bad", "good"))
    order = {name: node.lineno for name, node in own.items()}

    def text(found: set[str]) -> str:
        return "\n\n\n".join(_source(source, own[name]) for name in sorted(found, key=lambda n: order[n]))

    return text(bad - good), text(good - bad), text(bad & good)


def _uses(node: ast.AST, own: dict[str, "ast.FunctionDef | ast.ClassDef"]) -> set[str]:
    found: set[str] = set()
    left = [node]
    while left:
        current = left.pop()
        name = getattr(current, "name", "")
        if name in found:
            continue
        found.add(name)
        left += [own[n.id] for n in ast.walk(current) if isinstance(n, ast.Name) and n.id in own and n.id not in found]
    return found & set(own)


def _source(source: str, node: "ast.FunctionDef | ast.ClassDef") -> str:
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return "\n".join(source.splitlines()[first - 1:node.end_lineno])
