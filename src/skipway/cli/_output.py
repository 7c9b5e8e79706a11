"""Where a command's text goes: stdout, in colour where that is a terminal, or the file of `--output`."""

import os
import pathlib
import sys

import typer

from skipway._errors import UsageError


def colored(output: pathlib.Path | None) -> bool:
    """Whether the text may hold colours: it goes to a terminal, and NO_COLOR is not set."""
    return output is None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def write(text: str, output: pathlib.Path | None) -> None:
    """Prints `text`, or writes it to the file as UTF-8. Raises UsageError, one line, where the file cannot be written."""
    if output is None:
        typer.echo(text, nl=False, color=colored(output))
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {output}: {error.strerror}; give a file in a folder that exists and may be written to") from error


def write_bytes(data: bytes, output: pathlib.Path | None) -> None:
    """Writes `data` to the file, or to stdout. Raises UsageError, one line, where the file cannot be written."""
    if output is None:
        sys.stdout.buffer.write(data)
        return
    try:
        output.write_bytes(data)
    except OSError as error:
        raise UsageError(f"--output {output}: {error.strerror}; give a file in a folder that exists and may be written to") from error


def writable(output: pathlib.Path | None) -> None:
    """Raises UsageError before the work is done where `output` cannot be written for a reason that shows already."""
    if output is None:
        return
    reason = "Is a directory" if output.is_dir() else "" if output.parent.is_dir() else "No such file or directory"
    if not reason and not os.access(output if output.exists() else output.parent, os.W_OK):
        reason = "Permission denied"
    if reason:
        raise UsageError(f"--output {output}: {reason}; give a file in a folder that exists and may be written to")


def one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    """Raises UsageError where `value` is none of `known`."""
    if value not in known:
        raise UsageError(f"{option}: got {value!r}, want one of {', '.join(known)}")
