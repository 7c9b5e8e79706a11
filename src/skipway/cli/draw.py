"""`skipway draw TARGET`: draws the residual wiring of a model, in the terminal or as an SVG or HTML file."""

import pathlib
import shutil
import sys
from typing import Annotated

import typer

from skipway._errors import UsageError
from skipway.cli._errors import one_line
from skipway.cli._output import colored, one_of, writable, write

SUFFIXES = {".svg": "svg", ".html": "html", ".htm": "html", ".txt": "text"}
FORMATS = ("text", "svg", "html")
WIDTH = 100             # columns where the text goes to no terminal

Texts = list[str]


def command(
    target: Annotated[str, typer.Argument(help="A target as check takes it, or the JSON file of a report or a wiring.")],
    given: Annotated[Texts | None, typer.Option("--input", help='One input, "x=float32[2,3,224,224]" or "ids=int64[1,16]<1000"; repeatable.')] = None,
    inputs: Annotated[str | None, typer.Option(help="file.py:function that returns the inputs: a tuple, a dict or (tuple, dict).")] = None,
    config: Annotated[Texts | None, typer.Option(help="KEY=VALUE for the configuration of an hf: target; repeatable.")] = None,
    form: Annotated[str | None, typer.Option("--format", help="text, svg or html; default: what the ending of --output says, else text.")] = None,
    open_all: Annotated[bool, typer.Option("--open", help="Draw every block of a repeat.")] = False,
    stream: Annotated[str | None, typer.Option(help="Draw this main stream only.")] = None,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Text: no character outside ASCII.")] = False,
    output: Annotated[pathlib.Path | None, typer.Option(help="Write the drawing to this file instead of stdout.")] = None,
    mode: Annotated[str, typer.Option(help="eval or train: the mode the model is put in.")] = "eval",
    debug: Annotated[bool, typer.Option(help="Print tracebacks.")] = False,
) -> None:
    """Draw the residual wiring of a model.

    Streams are lines, branches, norms and scales stand where they are, findings beside what they speak of.

    Runs the target's own Python code, as a test runner does. Exit status: 0 drawn, whatever was found; 2 it could not be.
    """
    with one_line(debug):
        wanted = chosen(form, output)
        one_of("--mode", mode, ("eval", "train"))
        if open_all and wanted == "html":
            raise UsageError("--open: an HTML page opens repeats itself; leave it out, or take --format svg or text")
        if stream is not None and wanted == "html":
            raise UsageError("--stream: an HTML page shows all streams; leave it out, or take --format svg or text")
        writable(output)
        from skipway.cli._targets import reported
        report = reported(target, given or (), inputs, config or (), mode)
        from skipway.report.drawing import draw
        text = draw(report, wanted, open=open_all, only=stream, color=colored(output), width=_width(output),
                    ascii_only=ascii_only or (output is None and not _shows()))
        write(text, output)


def chosen(form: str | None, output: pathlib.Path | None) -> str:
    """The format that was asked for, or that the file's ending says. Raises UsageError where there is none such."""
    if form is not None:
        one_of("--format", form, FORMATS)
        return form
    if output is None:
        return "text"
    if output.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--output {output}: no drawing has the ending {output.suffix!r}; want {', '.join(SUFFIXES)}, or say --format")
    return SUFFIXES[output.suffix.lower()]


def _width(output: pathlib.Path | None) -> int:
    return shutil.get_terminal_size((WIDTH, 24)).columns if output is None and sys.stdout.isatty() else WIDTH


def _shows() -> bool:
    """Whether stdout can show lines and marks."""
    try:
        "┃╭⊕◀".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
