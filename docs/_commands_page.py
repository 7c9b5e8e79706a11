"""reference/commands.md: every command with its arguments and options, from the command line's own declarations."""

import inspect
from typing import Any

import typer.main

from skipway.cli import app

HEAD = """# Commands

`skipway --help` lists the commands and `skipway COMMAND --help` prints what stands here. Exit status: 0 done and nothing found at or above
`--fail-on`; 1 something was found; 2 the command could not do its work, and one line on stderr says why and what to do.
"""


def commands_page() -> str:
    """The page."""
    group: Any = typer.main.get_command(app)
    rows = ["| command | what it does |", "|---|---|"]
    rows += [f"| [{name}](#{name}) | {_cell(_summary(one))} |" for name, one in sorted(group.commands.items())]
    return "\n".join([HEAD, *rows, "", *(section(name, one) for name, one in sorted(group.commands.items()))])


def section(name: str, one: Any) -> str:
    """One command."""
    arguments = [p for p in one.params if p.param_type_name == "argument"]
    options = [p for p in one.params if p.param_type_name == "option" and not p.hidden]
    usage = " ".join([f"skipway {name}", *(_metavar(p) for p in arguments), "[OPTIONS]"])
    parts = [f"## {name}", inspect.cleandoc(one.help or ""), f"```bash\n{usage}\n```"]
    if arguments:
        parts.append("\n".join(["| argument | meaning |", "|---|---|", *(f"| `{p.name}` | {_cell(p.help or '')} |" for p in arguments)]))
    if options:
        rows = [f"| {_flags(p)} | {_cell(p.help or '')} | {_default(p)} |" for p in options]
        parts.append("\n".join(["| option | meaning | default |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _summary(one: Any) -> str:
    return inspect.cleandoc(one.help or "").split("\n\n")[0].replace("\n", " ")


def _metavar(p: Any) -> str:
    text = p.name + ("..." if p.nargs == -1 else "")
    return text if p.required else f"[{text}]"


def _flags(p: Any) -> str:
    value = f" {p.metavar}" if p.metavar and not p.is_flag else ""
    return ", ".join(f"`{flag}{value}`" for flag in (*p.opts, *p.secondary_opts))


def _default(p: Any) -> str:
    value = p.default
    return "" if value is None or callable(value) or value in ([], ()) or (p.is_flag and not value) else f"`{value}`"


def _cell(text: str) -> str:
    """Text that may stand in a table; angle brackets are no tags."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
