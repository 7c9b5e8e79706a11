"""`skipway docs`: shows the documentation site in a browser, from this machine alone."""

import functools
import http.server
import pathlib
from typing import Annotated

import typer

from skipway._errors import UsageError
from skipway.cli._errors import one_line

LOOPBACK = "127.0.0.1"
BUILD = "python docs/build.py"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of one folder, without a line a request."""

    def log_message(self, format: str, *args: object) -> None:
        return


def command(
    site: Annotated[pathlib.Path | None, typer.Option(help="Folder of a built site. Default: the one in the package, else build/site of the "
                                                           "checkout that skipway is installed from.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to serve on; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the first page in a browser.")] = True,
    address: Annotated[bool, typer.Option("--path", help="Print where the first page lies and stop: it can be opened from there, too.")] = False,
    debug: Annotated[bool, typer.Option(help="Print tracebacks.")] = False,
) -> None:
    """Show the documentation in a browser, from this machine alone.

    Serves the built site on the loopback address, which only this machine reaches. The pages ask for nothing outside, search included. The site is
    built by `python docs/build.py` in a checkout. Ends with Ctrl-C.
    """
    with one_line(debug):
        folder = found(site)
        if address:
            typer.echo(str(folder / "index.html"))
            return
        with server(folder, port) as serving:
            where = f"http://{LOOPBACK}:{serving.server_address[1]}/index.html"
            typer.echo(f"{folder} is at {where}; Ctrl-C ends it")
            if browser:
                import webbrowser
                if not webbrowser.open(where):
                    typer.echo("no browser was found: open the address by hand", err=True)
            try:
                serving.serve_forever()
            except KeyboardInterrupt:
                typer.echo("")


def found(site: pathlib.Path | None) -> pathlib.Path:
    """The folder of the site. Raises UsageError where there is none."""
    import skipway
    package = pathlib.Path(skipway.__file__).parent
    places = [site] if site is not None else [package / "_site", package.parent.parent / "build" / "site"]
    for place in places:
        if (place / "index.html").is_file():
            return place.resolve()
    if site is not None:
        raise UsageError(f"--site {site}: no index.html is there; build the site with `{BUILD}` in a checkout of skipway")
    raise UsageError(f"docs: no built site in {' or '.join(map(str, places))}; build it with `{BUILD}` in a checkout, or name its folder with --site")


def server(folder: pathlib.Path, port: int) -> http.server.ThreadingHTTPServer:
    """A server of one folder on the loopback address. Raises UsageError where the port is taken."""
    try:
        return http.server.ThreadingHTTPServer((LOOPBACK, port), functools.partial(_Quiet, directory=str(folder)))
    except OSError as error:
        raise UsageError(f"--port {port}: {error.strerror}; take another, or 0 for a free one") from error
