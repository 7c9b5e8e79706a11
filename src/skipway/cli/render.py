"""`skipway render FILE.json`: writes what `skipway check` or `skipway probe` wrote as JSON in another format."""

import pathlib
from typing import Annotated, Any

import typer

from skipway._errors import UsageError
from skipway.cli._errors import one_line
from skipway.cli._output import colored, one_of, writable, write, write_bytes


def command(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="A report, a wiring or the table of a probe as JSON, or a list of reports; - "
                                               "is stdin.")],
    form: Annotated[str, typer.Option("--format", help="text, json, html, svg, sarif, github or another format that is installed; of a probe text, "
                                      "json, csv, png or html.")] = "text",
    output: Annotated[pathlib.Path | None, typer.Option(help="Write the report to this file instead of stdout.")] = None,
    debug: Annotated[bool, typer.Option(help="Print tracebacks.")] = False,
) -> None:
    """Write reports again, in another format, from their JSON.

    Nothing is run and torch is not needed. Several reports become one text where the format can hold them. Exit status: 0 written,
    2 a file holds no report.
    """
    with one_line(debug):
        from skipway.report import _probe, formats, render, render_all
        from skipway.report._load import decoded, reports_in
        one_of("--format", form, tuple(sorted({*formats(), *_probe.formats()})))
        writable(output)
        read = [decoded(file) for file in files]
        if _table(read, form, output):
            return
        one_of("--format", form, formats())
        reports = [report for value, where in read for report in reports_in(value, where)]
        color = colored(output)
        write(render(reports[0], form, color=color) if len(reports) == 1 else render_all(reports, form, color=color), output)


def _table(read: list[tuple[Any, str]], form: str, output: pathlib.Path | None) -> bool:
    """Writes the table of a probe; False where the files hold none."""
    from skipway.report import _probe
    from skipway.report._probe._load import is_table, table_of
    tables = [where for value, where in read if is_table(value)]
    if not tables:
        return False
    if len(read) > 1:
        raise UsageError(f"{tables[0]}: it holds the table of a probe, which is written alone; name one file")
    one_of("--format", form, _probe.formats())
    _probe.check_format(form, output is None)
    made = _probe.render(table_of(*read[0]), form, color=colored(output))
    if isinstance(made, bytes):
        write_bytes(made, output)
    else:
        write(made, output)
    return True
