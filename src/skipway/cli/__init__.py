"""The command line: one command a file, found by its name; what a command needs is imported inside its function."""

import importlib.metadata
import sys
from typing import Annotated

import typer

from skipway._registry import load, names

app = typer.Typer(name="skipway", no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
                  help="Residual connections in PyTorch: find every one, see how it is wired, learn what is wrong with it.")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"skipway {importlib.metadata.version('skipway')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """Residual connections in PyTorch: find every one, see how it is wired, learn what is wrong with it."""


for _name in names(__name__):
    app.command(_name)(load(__name__, _name).command)


def main() -> None:
    """The `skipway` script. A character that the terminal's encoding lacks is replaced, not an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app()
