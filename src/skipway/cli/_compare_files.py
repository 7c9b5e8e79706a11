"""The files of a comparison that people look at: report.html, and each figure as PNG and SVG. Needs no torch."""

import pathlib
from typing import Any

import typer

from skipway._errors import StoreError
from skipway.report._escape import plain

PAGE, PICTURES = "report.html", "figures"


def write(folder: pathlib.Path, record: dict[str, Any]) -> pathlib.Path:
    """Writes them into the study's folder and gives the page's path. Raises StoreError, one line, where that cannot be written.

    Without matplotlib there are no pictures, and a line on stderr says so.
    """
    from skipway.report._compare import html, pictures
    page = folder / PAGE
    try:
        page.write_text(html.render(record), encoding="utf-8")
        if pictures.ready():
            (folder / PICTURES).mkdir(exist_ok=True)
            for name, data in pictures.render(record):
                (folder / PICTURES / name).write_bytes(data)
        else:
            typer.echo("no PNG and SVG files of the figures: they need matplotlib; pip install 'skipway[plot]', then skipway compare --report "
                       f"{plain(str(folder))}", err=True)
    except OSError as error:
        raise StoreError(f"{error.filename or folder}: {error.strerror}; see whether the folder may be written to") from error
    return page
