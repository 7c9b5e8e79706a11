"""The files of a comparison that people look at: report.html, and each figure as PNG and SVG. Needs no torch."""

import pathlib
from typing import Any

import typer

from skipway.report._escape import plain

PAGE = "report.html"


def write(folder: pathlib.Path, record: dict[str, Any]) -> pathlib.Path:
    """Writes them into the study's folder and gives the page's path. Raises StoreError, one line, where that cannot be written.

    Without matplotlib there are no pictures, and a line on stderr says so.
    """
    from skipway.lab._report import put
    from skipway.report import comparison
    from skipway.report._compare import pictures
    for name, data in comparison(record):
        put(folder, name, data)
    if not pictures.ready():
        typer.echo("no PNG and SVG files of the figures: they need matplotlib; pip install 'skipway[plot]', then skipway compare --report "
                   f"{plain(str(folder))}", err=True)
    return folder / PAGE
