"""`skipway explain SKW201`: what a rule looks for, why, and what to do, with its own bad and good example."""

import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from skipway.cli._errors import one_line

if TYPE_CHECKING:
    from skipway.cli._pages import Page


def command(
    rule: Annotated[str, typer.Argument(help="A rule's code or name: SKW201 or normed-skip.")],
    debug: Annotated[bool, typer.Option(help="Print tracebacks.")] = False,
) -> None:
    """Print one rule with its bad and good example."""
    with one_line(debug):
        from skipway.cli._pages import find
        typer.echo(text(find(rule)))


def text(page: "Page") -> str:
    """The page as plain text."""
    parts = [f"{page.code} {page.slug} ({page.severity}, stage {page.stage})\n{page.summary}"]
    parts += [f"{title}\n{textwrap.indent(body, '    ')}" for title, body in page.sections.items()]
    for title, source in (("Used by both examples", page.shared), ("Bad", page.bad), ("Good", page.good)):
        if source:
            parts.append(f"{title}\n\n{textwrap.indent(source, '    ')}")
    return "\n\n".join(parts)
