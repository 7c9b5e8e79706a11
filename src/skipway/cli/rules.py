"""`skipway rules`: lists all rules."""

from typing import Annotated

import typer

from skipway.cli._errors import one_line


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
    debug: Annotated[bool, typer.Option(help="Print tracebacks.")] = False,
) -> None:
    """List all rules, one a line."""
    with one_line(debug):
        from skipway.cli._pages import pages
        found = pages()
        if as_json:
            import json
            from dataclasses import asdict
            typer.echo(json.dumps([asdict(page) for page in found], indent=2))
            return
        name = max((len(p.slug) for p in found), default=0)
        for p in found:
            typer.echo(f"{p.code}  {p.severity:<7}  {p.stage:<6}  {p.slug:<{name}}  {p.summary}")
